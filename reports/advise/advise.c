/* Computes the advice from histograms of exponents and the largest values per step. */
#include "reports/advise/advise.h"

#include "reports/record/exponents.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

const ab_advise_goal ab_advise_usual = {1, 1e-6, 1.0 / 2000, 0, 0};

/* ---- which cell ------------------------------------------------------------------------------ */

/* True if the scale never changed and applies to all gradients. */
static bool constant_scale(const cJSON *cell) {
    bool many = ab_json_at(cell, "layer_scales") || ab_json_at(cell, "loss_scales");
    bool fp32 = strcmp(ab_json_text(cell, "level", ""), "O0") == 0;
    return cJSON_GetArraySize(ab_json_at(cell, "scale")) == 1 && (!many || fp32);
}

static bool is_perturbed_baseline(const cJSON *cell) { return cJSON_IsString(ab_json_at(cell, "twin")); }

static bool has_gradients(const cJSON *cell) {
    return cJSON_GetArraySize(ab_json_at(cell, "probes.tensors")) > 0;
}

static double scale_of(const cJSON *cell) {
    const cJSON *scale = cJSON_GetArrayItem(cJSON_GetArrayItem(ab_json_at(cell, "scale"), 0), 0);
    return cJSON_IsNumber(scale) && scale->valuedouble > 0 ? scale->valuedouble : 1;
}

/* True if the casts of a cell at its own scale lost nothing relevant: then its gradients are valid for any
 * good scale. */
static bool is_clean(const cJSON *cell) {
    const ab_format *half;
    const cJSON *tensor;
    if (ab_format_find(ab_json_text(cell, "half_format", ""), &half) != AB_OK) return false;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const ab_exponent_mass all = ab_exponents_all(tensor), lost = ab_exponents_flushed(tensor, half, 0);
        if (!ab_json_is_true(tensor, "cast")) continue;
        if (ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0) +
                    ab_json_number(tensor, "nan", 0) >
                0 ||
            lost.energy > ab_advise_usual.flushed_energy * all.energy)
            return false;
    }
    return true;
}

/* The level's own cell if its scale never changed and lost nothing: a run at another good scale follows the
 * same trajectory. Else O0, whose gradients lost nothing but which trains slightly differently; else the
 * level's own cell. */
static const cJSON *gradients_of(const cJSON *document, const char *level) {
    const cJSON *cell, *o0 = NULL, *own = NULL;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (is_perturbed_baseline(cell) || !has_gradients(cell) || !constant_scale(cell)) continue;
        const char *name = ab_json_text(cell, "level", "");
        if (strcmp(name, "O0") == 0 && !o0) o0 = cell;
        if (strcmp(name, level) != 0) continue;
        if (is_clean(cell)) return cell;
        if (!own) own = cell;
    }
    return o0 ? o0 : own;
}

static const cJSON *cell_of_level(const cJSON *document, const char *level) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!is_perturbed_baseline(cell) && has_gradients(cell) &&
            strcmp(ab_json_text(cell, "level", ""), level) == 0)
            return cell;
    }
    return NULL;
}

/* ---- lower limit ----------------------------------------------------------------------------- */

static int lowest_k(const cJSON *tensor, const ab_advise *a, const ab_advise_goal *goal) {
    const ab_exponent_mass all = ab_exponents_all(tensor);
    int k = AB_ADVISE_K_MIN;
    for (; k <= AB_ADVISE_K_MAX; k++) {
        const ab_exponent_mass lost = ab_exponents_flushed(tensor, a->half, k - a->base_log2);
        if (lost.count <= goal->flushed_share * all.count && lost.energy <= goal->flushed_energy * all.energy)
            break;
    }
    return k;
}

/* The rows of the weight whose gradient this is, or NULL. */
static const cJSON *rows_of(const cJSON *cell, const char *gradient) {
    const cJSON *item;
    cJSON_ArrayForEach(item, ab_json_at(cell, "probes.rows")) {
        const char *name = ab_json_text(item, "name", "");
        const size_t length = strlen(name);
        if (length > 0 && strncmp(name, gradient, length) == 0 && strcmp(gradient + length, ".grad") == 0)
            return item;
    }
    return NULL;
}

/* The lowest 2^k at which every row with a recorded gradient keeps some of it; rows are recorded unscaled. */
static int lowest_k_of_rows(const ab_advise *a, const cJSON *rows) {
    int k = AB_ADVISE_K_MIN;
    if (!rows || ab_exponents_all(rows).count <= 0) return k;
    while (k <= AB_ADVISE_K_MAX && ab_exponents_flushed(rows, a->half, k).count > 0) k++;
    return k;
}

static ab_advise_layer *layer_called(ab_advise *a, const char *name) {
    for (int i = 0; i < a->layers; i++)
        if (strcmp(a->layer[i].name, name) == 0) return &a->layer[i];
    if (a->layers == AB_ADVISE_LAYERS) return NULL;
    ab_advise_layer *layer = &a->layer[a->layers++];
    memcpy(layer->name, name, sizeof layer->name);
    layer->k_lo = AB_ADVISE_K_MIN;
    return layer;
}

static void add_tensor(ab_advise *a, const cJSON *tensor, const ab_advise_goal *goal) {
    if (a->tensors == AB_ADVISE_TENSORS) return;
    ab_advise_tensor *t = &a->tensor[a->tensors];
    ab_text_clean(t->name, sizeof t->name, ab_json_text(tensor, "name", ""));
    ab_text_clean(t->layer, sizeof t->layer, ab_json_text(tensor, "layer", ""));
    t->k_lo = lowest_k(tensor, a, goal);
    const int by_rows = lowest_k_of_rows(a, rows_of(a->cell, ab_json_text(tensor, "name", "")));
    t->by_rows = by_rows > t->k_lo;
    if (t->by_rows) t->k_lo = by_rows;
    t->a_step =
        ab_json_number(tensor, "count", 0) / fmax(ab_json_number(a->cell, "probes.steps_probed", 1), 1);
    t->whole = ab_json_number(tensor, "zero", 0) + ab_json_number(tensor, "nan", 0) +
                   ab_json_number(tensor, "inf", 0) ==
               0;
    if (a->tensors == 0 || t->k_lo > a->k_lo) {
        a->k_lo = t->k_lo;
        a->decides = a->tensors;
    }
    ab_advise_layer *layer = layer_called(a, t->layer);
    if (layer && t->k_lo > layer->k_lo) layer->k_lo = t->k_lo;
    a->tensors++;
}

/* ---- upper limit ----------------------------------------------------------------------------- */

static int highest_k(const ab_advise *a, const ab_series *series, ab_extreme_kind kind, double alpha) {
    int k = AB_ADVISE_K_MAX;
    for (; k >= AB_ADVISE_K_MIN; k--) {
        const ab_forecast forecast =
            ab_series_forecast(series, kind, ab_advise_limit_log2(a) - k, a->run_steps);
        if (ab_forecast_within(&forecast, alpha)) break;
    }
    return k;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* The scale exponent within the limits; 0 if the range is unbounded above and contains 0. */
static int between(int k_lo, int k_hi) {
    if (k_lo <= 0 && k_hi >= AB_ADVISE_K_MAX) return 0;
    return k_lo <= k_hi && k_hi - 1 >= k_lo ? k_hi - 1 : k_lo;
}

static void judge_layers(ab_advise *a, const cJSON *level_cell, const ab_advise_goal *goal) {
    const double flush = log2(ab_format_flush_limit(a->half)),
                 top = ab_series_quantile(&a->series, AB_EXTREME_WEIGHTED, goal->alpha, a->run_steps);
    a->binades = top - (flush - a->k_lo);
    for (int i = 0; i < a->layers; i++) {
        ab_advise_layer *layer = &a->layer[i];
        ab_series series;
        layer->k_hi = AB_ADVISE_K_MAX;
        layer->binades = top - (flush - layer->k_lo);
        if (ab_advise_series_of(a, level_cell, layer->name, &series)) {
            layer->k_hi = highest_k(a, &series, AB_EXTREME_WEIGHTED, goal->alpha);
            layer->skipped = ab_advise_overflow_at(a, &series, a->octaves).skipped;
        }
        layer->feasible = layer->k_lo <= layer->k_hi;
        layer->blocks = layer->k_lo > a->k_hi;
        layer->k = between(layer->k_lo, layer->k_hi);
    }
}

/* ---- prediction ------------------------------------------------------------------------------ */

/* Shares flushed per tensor, per layer, and over the tensors without zeros. */
static void predict_tensors(ab_advise *a, const cJSON *level_cell) {
    double whole = 0, whole_lost = 0, lost[AB_ADVISE_LAYERS][2] = {{0}}, all[AB_ADVISE_LAYERS][2] = {{0}};
    const cJSON *tensor;
    int i = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        const ab_exponent_mass total = ab_exponents_all(tensor);
        double count, energy;
        if (!ab_advise_is_used(level_cell, tensor) || i == a->tensors) continue;
        ab_advise_tensor *t = &a->tensor[i++];
        ab_advise_flushed(a, tensor, a->octaves, &count, &energy);
        t->share = count / total.count;
        t->energy = energy / total.energy;
        const ab_advise_layer *layer = layer_called(a, t->layer);
        if (layer) {
            double *l = lost[layer - a->layer], *w = all[layer - a->layer];
            l[0] += count;
            l[1] += energy;
            w[0] += total.count;
            w[1] += total.energy;
        }
        if (!t->whole) continue;
        a->wholes++;
        whole += total.count;
        whole_lost += count;
    }
    for (i = 0; i < a->layers; i++) {
        a->layer[i].share = lost[i][0] / all[i][0];
        a->layer[i].energy = lost[i][1] / all[i][1];
    }
    a->whole_share = whole > 0 ? whole_lost / whole : 0;
}

/* A fixed scale lasts while the drift keeps the gradients within the limits. Only the part of the drift
 * beyond two standard errors counts. */
static void fixed_or_dynamic(ab_advise *a, const ab_advise_goal *goal) {
    const ab_series *s = &a->series;
    const double horizon = goal->horizon > 0 ? goal->horizon : a->run_steps,
                 sure = fmax(fabs(s->drift) - 2 * s->drift_error, 0), up = s->drift > 0 ? sure : 0,
                 down = s->drift < 0 ? sure : 0;
    a->room = ab_advise_limit_log2(a) - a->k -
              ab_series_quantile(s, AB_EXTREME_WEIGHTED, goal->alpha, a->run_steps);
    const double below = a->k - a->k_lo;
    a->lasts = (double)INFINITY;
    if (up > 0) a->lasts = 1000 * fmax(a->room, 0) / up;
    if (down > 0) a->lasts = 1000 * below / down;
    a->lasts += isfinite(a->lasts) ? a->run_steps : 0;
    a->fixed = a->lasts >= horizon;
    a->window = (int)fmin(ceil(1 / goal->alpha), 100000);
    if (down > 0) a->window = (int)fmax(fmin(a->window, 1000 / down), 20);
}

/* ---- advice ---------------------------------------------------------------------------------- */

static ab_status read_record(const cJSON *document, const char *level, const cJSON *level_cell,
                             const ab_advise_goal *goal, ab_advise *a) {
    const cJSON *tensor;
    a->cell = gradients_of(document, level);
    if (!a->cell && ab_observed_document(document))
        return ab_fail(AB_INPUT, "advise: the record has no gradients at a scale that stays the same: the "
                                 "loss scale changed, or no "
                                 "gradient was shown; train some hundred steps at a fixed scale");
    if (!a->cell)
        return ab_fail(
            AB_INPUT,
            "advise: the record has no gradients at a scale that stays the same; run with --levels O0,%s "
            "--probes gradients",
            level);
    a->own = strcmp(ab_json_text(a->cell, "level", ""), level) == 0;
    AB_TRY(ab_format_find(ab_json_text(a->cell, "half_format", ""), &a->half));
    /* an O0 cell's gradients are recorded times its own scale */
    a->base_log2 = log2(scale_of(a->cell));
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        if (ab_advise_is_used(level_cell, tensor)) add_tensor(a, tensor, goal);
    }
    if (a->tensors == 0)
        return ab_fail(AB_INPUT, "advise: the recorded gradients have no finite non-zero value");
    if (ab_advise_series_of(a, level_cell, NULL, &a->series)) return AB_OK;
    return ab_fail(
        AB_INPUT,
        "advise: expected gradients of %d steps or more, found %d; run with --probe-every 5 or more "
        "steps",
        AB_SERIES_FEWEST, a->series.columns);
}

ab_status ab_advise_make(const cJSON *document, const char *level, const ab_advise_goal *goal, ab_advise *a) {
    const cJSON *level_cell = cell_of_level(document, level);
    memset(a, 0, sizeof *a);
    AB_TRY(read_record(document, level, level_cell, goal, a));
    a->steps = a->series.columns;
    a->run_steps = ab_json_number(a->cell, "steps_total", a->steps * a->series.steps_a_column);
    for (int kind = 0; kind < AB_EXTREME_KINDS; kind++)
        a->k_hi_by[kind] = highest_k(a, &a->series, (ab_extreme_kind)kind, goal->alpha);
    a->k_hi = highest_k(a, &a->series, AB_EXTREME_WEIGHTED, goal->alpha);
    a->feasible = a->k_lo <= a->k_hi;
    a->k = between(a->k_lo, a->k_hi);
    a->octaves = goal->scale > 0 ? log2(goal->scale) : a->k;
    judge_layers(a, level_cell, goal);
    predict_tensors(a, level_cell);
    ab_advise_flush_at(a, level_cell, a->octaves, &a->share, &a->energy);
    const ab_forecast forecast = ab_advise_overflow_at(a, &a->series, a->octaves);
    a->overflow = forecast.skipped;
    a->worst = forecast.worst;
    fixed_or_dynamic(a, goal);
    ab_advise_rules(a, level_cell);
    return AB_OK;
}
