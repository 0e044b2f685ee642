#include "reports/record/subnormals.h"

#include "kernels/core/text.h"
#include "reports/diagnose/thresholds/thresholds.h"
#include "reports/record/json.h"
#include "reports/record/text.h"
#include "reports/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ab_thresholds *const limits = &ab_thresholds_default;

/* ---- columns --------------------------------------------------------------------------------- */

enum { COLUMNS = 128, NAME = 96 };

typedef struct axis {
    int count;
    double first, stride, largest, share[COLUMNS]; /* share: -1 without operands */
} axis;

static axis axis_of(const cJSON *cell) {
    const cJSON *steps = ab_json_at(cell, "probes.subnormals.steps"), *values = ab_json_at(steps, "values"),
                *subnormal = ab_json_at(steps, "subnormal");
    const cJSON *v = values ? values->child : NULL, *s = subnormal ? subnormal->child : NULL;
    axis a = {.first = ab_json_number(steps, "first", 0), .stride = ab_json_number(steps, "stride", 0)};
    for (; v && s && a.count < COLUMNS; v = v->next, s = s->next) {
        const double share = v->valuedouble > 0 ? s->valuedouble / v->valuedouble : -1;
        a.share[a.count++] = share;
        a.largest = fmax(a.largest, share);
    }
    return a;
}

static bool is_laden(const axis *a, int column) {
    return a->share[column] >= limits->subnormal_laden * a->largest;
}
static bool is_clean(const axis *a, int column) {
    return a->share[column] >= 0 && a->share[column] <= limits->subnormal_clean * a->largest;
}

/* ---- one process ----------------------------------------------------------------------------- */

/* A process lists the times of its unprobed steps after step 0. Where some were probed, these are spread
 * evenly, so the i-th of n times is that of step 1 + i (steps - 1) / n, to a fraction of a column. */
static int column_of(const axis *a, double steps, int i, int n) {
    const double step = 1 + i * (steps - 1) / n, column = floor((step - a->first) / a->stride);
    return column < 0 ? 0 : column < a->count ? (int)column : a->count - 1;
}

typedef struct groups {
    int laden, clean;
    double laden_time[COLUMNS], clean_time[COLUMNS];
} groups;

static void add_column(groups *g, const axis *a, int column, double *time, int n) {
    if (n == 0) return;
    const double middle = ab_stats_median(time, n);
    if (!(middle > 0)) return;
    if (is_laden(a, column))
        g->laden_time[g->laden++] = middle;
    else if (is_clean(a, column))
        g->clean_time[g->clean++] = middle;
}

/* Keeps every k-th, if there are more than the test takes. */
static void thin(double *value, int *n) {
    const int k = (*n + AB_STATS_MAX_UNPAIRED - 1) / AB_STATS_MAX_UNPAIRED;
    int kept = 0;
    for (int i = 0; k > 1 && i < *n; i += k) value[kept++] = value[i];
    if (k > 1) *n = kept;
}

static ab_status group_times(const axis *a, const cJSON *times, double steps, groups *g) {
    const int n = cJSON_GetArraySize(times);
    const cJSON *item;
    int i = 0, last = 0, held = 0;
    double *time = malloc(((size_t)n + 1) * sizeof *time);
    if (!time) return ab_fail(AB_NO_MEMORY, "out of memory while summarising step times");
    *g = (groups){.laden = 0};
    cJSON_ArrayForEach(item, times) {
        const int column = column_of(a, steps, i++, n);
        if (column != last) {
            add_column(g, a, last, time, held);
            held = 0;
        }
        last = column;
        if (cJSON_IsNumber(item)) time[held++] = item->valuedouble;
    }
    add_column(g, a, last, time, held);
    free(time);
    thin(g->laden_time, &g->laden);
    thin(g->clean_time, &g->clean);
    return AB_OK;
}

/* ---- the cell -------------------------------------------------------------------------------- */

typedef struct finding {
    int processes, slower; /* with both kinds of columns; those in which laden ones are slower */
    double ratio, low;     /* the smallest of them */
} finding;

static ab_status look_at(const axis *a, const cJSON *process, double all_steps, finding *f) {
    const double steps = ab_json_number(process, "steps", all_steps);
    ab_ratio ratio;
    groups g;
    AB_TRY(group_times(a, ab_json_at(process, "step_time_ns"), steps, &g));
    if (g.laden == 0 || g.clean == 0) return AB_OK;
    AB_TRY(ab_ratio_unpaired(g.clean_time, g.clean, g.laden_time, g.laden, limits->subnormal_alpha,
                             limits->subnormal_slower, &ratio));
    f->slower += ab_is_significant(ratio.p_above, limits->subnormal_alpha);
    if (f->processes++ == 0 || ratio.ratio < f->ratio) f->ratio = ratio.ratio;
    f->low = f->processes == 1 ? ratio.low : fmin(f->low, ratio.low);
    return AB_OK;
}

static const cJSON *main_operand(const cJSON *cell) {
    const cJSON *operand, *found = NULL;
    cJSON_ArrayForEach(operand, ab_json_at(cell, "probes.subnormals.operands")) {
        if (!found || ab_json_number(operand, "subnormal", 0) > ab_json_number(found, "subnormal", 0))
            found = operand;
    }
    return found;
}

static cJSON *slowdown_object(const cJSON *cell, const axis *a, const finding *f) {
    const cJSON *operand = main_operand(cell);
    int since = 0;
    while (since < a->count - 1 && !is_laden(a, since)) since++;
    cJSON *object = cJSON_CreateObject();
    const bool made = cJSON_AddNumberToObject(object, "ratio", f->ratio) &&
                      cJSON_AddNumberToObject(object, "ratio_low", f->low) &&
                      cJSON_AddNumberToObject(object, "processes", f->processes) &&
                      cJSON_AddNumberToObject(object, "since_step", a->first + since * a->stride) &&
                      cJSON_AddNumberToObject(object, "largest_share", a->largest) &&
                      cJSON_AddStringToObject(object, "name", ab_json_text(operand, "name", "")) &&
                      cJSON_AddStringToObject(object, "layer", ab_json_text(operand, "layer", "")) &&
                      cJSON_AddStringToObject(object, "kind", ab_json_text(operand, "kind", ""));
    if (made) return object;
    cJSON_Delete(object);
    return NULL;
}

ab_status ab_subnormal_slowdown(const cJSON *cell, cJSON **object) {
    const double steps = ab_json_number(cell, "steps_total", 0);
    const axis a = axis_of(cell);
    const cJSON *process;
    finding f = {0, 0, 0, 0};
    *object = NULL;
    if (a.count == 0 || !(a.stride > 0) || !(a.largest >= limits->subnormal_share) || !(steps > 1))
        return AB_OK;
    cJSON_ArrayForEach(process, ab_json_at(cell, "processes")) AB_TRY(look_at(&a, process, steps, &f));
    if (f.processes == 0 || f.slower < f.processes) return AB_OK;
    *object = slowdown_object(cell, &a, &f);
    return *object ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory while summarising step times");
}

bool ab_subnormal_slowdown_text(const cJSON *cell, char *text, size_t size) {
    const cJSON *slowdown = ab_json_at(cell, "summary.subnormal_slowdown");
    char name[NAME], kind[NAME], share[AB_TEXT_NUMBER];
    text[0] = '\0';
    if (!slowdown) return false;
    ab_text_show(text, size,
                 "from step %.0f on up to %s %% of operands are subnormal (most: %s of %s); such steps take "
                 "%.2f times "
                 "as long, at least %.2f; see --flush-denormal",
                 ab_json_number(slowdown, "since_step", 0),
                 ab_text_percent(share, ab_json_number(slowdown, "largest_share", 0)),
                 ab_text_clean(kind, sizeof kind, ab_json_text(slowdown, "kind", "")),
                 ab_text_clean(name, sizeof name, ab_json_text(slowdown, "name", "")),
                 ab_json_number(slowdown, "ratio", 0), ab_json_number(slowdown, "ratio_low", 0));
    return true;
}
