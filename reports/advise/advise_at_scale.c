/* What a scale does to the gradients of a record: what is flushed, and which steps overflow. */
#include "reports/advise/advise.h"

#include "reports/record/exponents.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

bool ab_advise_is_cast(const cJSON *level_cell, const char *name) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(level_cell, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "name", ""), name) == 0) return ab_json_is_true(tensor, "cast");
    }
    return level_cell == NULL;
}

bool ab_advise_is_used(const cJSON *level_cell, const cJSON *tensor) {
    return ab_advise_is_cast(level_cell, ab_json_text(tensor, "name", "")) &&
           ab_exponents_all(tensor).count > 0;
}

void ab_advise_flushed(const ab_advise *a, const cJSON *tensor, double octaves, double *count,
                       double *energy) {
    const double at = octaves - a->base_log2, up = ceil(at), part = exp2(up - at) - 1;
    const ab_exponent_mass above = ab_exponents_flushed(tensor, a->half, up),
                           below = ab_exponents_flushed(tensor, a->half, floor(at));
    *count = above.count + part * (below.count - above.count);
    *energy = above.energy + part * (below.energy - above.energy);
}

void ab_advise_flush_at(const ab_advise *a, const cJSON *level_cell, double octaves, double *share,
                        double *energy) {
    ab_exponent_mass lost = {0, 0}, all = {0, 0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        const ab_exponent_mass total = ab_exponents_all(tensor);
        double count, squares;
        if (!ab_advise_is_used(level_cell, tensor)) continue;
        ab_advise_flushed(a, tensor, octaves, &count, &squares);
        lost = (ab_exponent_mass){lost.count + count, lost.energy + squares};
        all = (ab_exponent_mass){all.count + total.count, all.energy + total.energy};
    }
    *share = all.count > 0 ? lost.count / all.count : 0;
    *energy = all.energy > 0 ? lost.energy / all.energy : 0;
}

double ab_advise_limit_log2(const ab_advise *a) { return log2(ab_format_overflow_limit(a->half)); }

/* Margins are recorded rounded down to sixteenths: a multiple of 1/16 is moved to the middle of its interval.
 */
static double largest_of_margin(const ab_advise *a, double margin) {
    const double middle = margin * 16 == floor(margin * 16) ? margin + 1.0 / 32 : margin;
    return ab_advise_limit_log2(a) - middle - a->base_log2;
}

/* If the cell's values were cast, the true values after an overflow are unknown: a lower bound. */
static void add_to_series(const ab_advise *a, const cJSON *tensor, bool casts, ab_series *s) {
    const cJSON *margin = cJSON_GetArrayItem(ab_json_at(tensor, "steps.margin_octaves"), 0),
                *over = cJSON_GetArrayItem(ab_json_at(tensor, "steps.overflowed"), 0);
    const double max_abs = ab_json_number(tensor, "max_abs", 0);
    for (int i = 0; margin && i < AB_SERIES_COLUMNS; i++) {
        if (cJSON_IsNumber(margin))
            s->largest[i] = fmax(s->largest[i], largest_of_margin(a, margin->valuedouble));
        s->cut[i] = s->cut[i] || (casts && over && over->valuedouble > 0);
        if (i >= s->columns) s->columns = i + 1;
        margin = margin->next;
        over = over ? over->next : NULL;
    }
    if (max_abs > 0) s->top = fmax(s->top, log2(max_abs) - a->base_log2);
}

/* Steps without a recorded value (all zero, NaN or inf) count as lower bounds. */
static void fill_gaps(ab_series *s) {
    double lowest = (double)INFINITY;
    for (int i = 0; i < s->columns; i++)
        if (isfinite(s->largest[i])) lowest = fmin(lowest, s->largest[i]);
    for (int i = 0; i < s->columns; i++) {
        if (isfinite(s->largest[i])) continue;
        s->largest[i] = i > 0 ? s->largest[i - 1] : lowest;
        s->cut[i] = true;
    }
}

bool ab_advise_series_of(const ab_advise *a, const cJSON *level_cell, const char *layer, ab_series *s) {
    const cJSON *tensor;
    char name[AB_ADVISE_NAME];
    const bool casts = strcmp(ab_json_text(a->cell, "level", ""), "O0") != 0;
    memset(s, 0, sizeof *s);
    for (int i = 0; i < AB_SERIES_COLUMNS; i++) s->largest[i] = -(double)INFINITY;
    s->top = -(double)INFINITY;
    s->steps_a_column = 1;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        ab_text_clean(name, sizeof name, ab_json_text(tensor, "layer", ""));
        if (!ab_advise_is_used(level_cell, tensor) || (layer && strcmp(layer, name) != 0)) continue;
        s->steps_a_column = fmax(ab_json_number(tensor, "steps.stride", 1), 1);
        add_to_series(a, tensor, casts, s);
    }
    fill_gaps(s);
    if (s->columns < AB_SERIES_FEWEST || !isfinite(s->largest[0])) return false;
    for (int i = 0; i < s->columns && !isfinite(s->top); i++) s->top = fmax(s->top, s->largest[i]);
    s->block = fmax(ab_json_number(a->cell, "probes.steps_probed", s->columns) / s->columns, 1);
    ab_series_fit(s);
    return true;
}

ab_forecast ab_advise_overflow_at(const ab_advise *a, const ab_series *series, double octaves) {
    return ab_series_forecast(series, AB_EXTREME_WEIGHTED, ab_advise_limit_log2(a) - octaves, a->run_steps);
}
