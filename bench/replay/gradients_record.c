/* Gradients of a result document: the largest by columns of steps, exponents by periods of columns, both at
 * the scale in force, which is divided out here. */
#include "bench/replay/gradients.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* COLUMNS: of a record, at most. */
enum { COLUMNS = 256, WHOLE = 1 << 20 };

/* Margins are recorded rounded down to sixteenths of an octave. */
static const double margin_step = 1.0 / 16;

/* A little more or less than a bound, so that rounding decides nothing. */
static const double just_above = 1 + 1e-12, just_below = 1 - 1e-12;

typedef struct reader {
    const cJSON *cell;
    ab_recorded *to;
    double limit;          /* least magnitude that overflows */
    bool checked;          /* the recorded scaler skipped what overflowed */
    int64_t first, stride; /* of the columns, in steps */
    int columns;
    double low[COLUMNS], high[COLUMNS]; /* of the largest gradient, unscaled; 0: not known */
    int period_columns;
} reader;

/* ---- which cell ------------------------------------------------------------------------------ */

static bool is_perturbed(const cJSON *cell) { return cJSON_IsString(ab_json_at(cell, "twin")); }

static bool has_gradients(const cJSON *cell) {
    return !is_perturbed(cell) && cJSON_GetArraySize(ab_json_at(cell, "probes.tensors")) > 0 &&
           !ab_json_at(cell, "layer_scales") && !ab_json_at(cell, "loss_scales");
}

static bool is_fp32(const cJSON *cell) { return strcmp(ab_json_text(cell, "level", ""), "O0") == 0; }

static bool is_dynamic(const cJSON *cell) {
    return !is_fp32(cell) && (ab_json_number(cell, "steps_skipped", 0) > 0 ||
                              cJSON_GetArraySize(ab_json_at(cell, "scale")) > 1 ||
                              strcmp(ab_json_text(cell, "scale_policy", ""), "dynamic") == 0);
}

/* How well a cell suits: its gradients and decisions are those of a run like the ones to replay. */
static int fitness(const cJSON *cell) {
    if (!has_gradients(cell)) return 0;
    return is_dynamic(cell) ? 3 : is_fp32(cell) ? 1 : 2;
}

static ab_status choose(const cJSON *document, const char *wanted, const cJSON **found) {
    const cJSON *cell;
    int best = 0;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (wanted && !strstr(ab_json_text(cell, "id", ""), wanted)) continue;
        if (fitness(cell) <= best) continue;
        best = fitness(cell);
        *found = cell;
    }
    if (best > 0) return AB_OK;
    if (wanted)
        return ab_fail(AB_INPUT,
                       "--cell: expected part of the id of a cell with gradients at one loss scale, "
                       "found '%s'",
                       ab_text_brief(wanted, 80));
    return ab_fail(AB_INPUT,
                   "scaler: the record has no gradients at one loss scale for all; run with --probes "
                   "gradients");
}

/* ---- scales and decisions --------------------------------------------------------------------- */

static double scale_of(const cJSON *run) {
    const cJSON *value = cJSON_GetArrayItem(run, 0);
    return cJSON_IsNumber(value) && value->valuedouble > 0 ? value->valuedouble : 1;
}

/* The scale of every step, and which were skipped. */
static ab_status read_steps(reader *r) {
    const cJSON *run, *skip;
    const double steps = ab_json_number(r->cell, "steps_total", 0);
    if (!(steps >= 1 && steps <= AB_RECORDED_STEPS))
        return ab_fail(AB_INPUT, "scaler: expected a record of 1 to %d steps, found %g", AB_RECORDED_STEPS,
                       steps);
    AB_TRY(ab_recorded_add(r->to, &(ab_recorded_step){.high = (double)INFINITY}, (int64_t)steps));
    int64_t at = 0;
    double last = 1;
    cJSON_ArrayForEach(run, ab_json_at(r->cell, "scale")) {
        const cJSON *count = cJSON_GetArrayItem(run, 1);
        last = scale_of(run);
        for (double n = cJSON_IsNumber(count) ? count->valuedouble : 0; n > 0 && at < r->to->steps; n--)
            r->to->step[at++].scale = last;
    }
    while (at < r->to->steps) r->to->step[at++].scale = last;
    cJSON_ArrayForEach(skip, ab_json_at(r->cell, "skipped_steps")) {
        if (cJSON_IsNumber(skip) && skip->valuedouble >= 0 && skip->valuedouble < steps)
            r->to->step[(int64_t)skip->valuedouble].skipped = true;
    }
    r->checked = is_dynamic(r->cell);
    return AB_OK;
}

/* A whole number of the record, within [least, most]. */
static int64_t whole(const cJSON *of, const char *path, double least, double most) {
    return (int64_t)fmin(fmax(ab_json_number(of, path, least), least), most);
}

static int64_t first_of(const cJSON *tensor) { return whole(tensor, "steps.first", 0, AB_RECORDED_STEPS); }
static int64_t stride_of(const cJSON *tensor) { return whole(tensor, "steps.stride", 1, AB_RECORDED_STEPS); }
static int exponent_of(const cJSON *of, const char *path) { return (int)whole(of, path, -999, 999); }

/* ---- the largest gradient --------------------------------------------------------------------- */

static bool is_used(const reader *r, const cJSON *tensor) {
    return is_fp32(r->cell) || ab_json_is_true(tensor, "cast");
}

static void widen(reader *r, int column, double low, double high) {
    r->low[column] = fmax(r->low[column], low);
    r->high[column] = fmax(r->high[column], high);
}

static double scale_at(const reader *r, int64_t step) {
    return r->to->step[step < r->to->steps ? step : r->to->steps - 1].scale;
}

/* A probe that saw the scale change kept the largest without it. Else the margin is at the scale of the
 * column, of which the first step is taken. */
static void see_largest(reader *r, const cJSON *tensor) {
    const cJSON *octaves = ab_json_at(tensor, "unscaled.largest_octaves"), *list, *item;
    const int64_t first = first_of(tensor), stride = stride_of(tensor);
    list = octaves ? octaves : ab_json_at(tensor, "steps.margin_octaves");
    int i = 0;
    cJSON_ArrayForEach(item, list) {
        const int64_t step = first + stride * i++;
        const int64_t column = step < r->first ? 0 : (step - r->first) / r->stride;
        if (!cJSON_IsNumber(item) || column >= r->columns) continue;
        const double x = item->valuedouble, scale = scale_at(r, step);
        if (octaves)
            widen(r, (int)column, exp2(x), exp2(x));
        else
            widen(r, (int)column, r->limit * exp2(-x - margin_step) / scale, r->limit * exp2(-x) / scale);
    }
}

static void read_columns(reader *r) {
    const cJSON *tensor;
    r->stride = 1;
    cJSON_ArrayForEach(tensor, ab_json_at(r->cell, "probes.tensors")) {
        const int columns = cJSON_GetArraySize(ab_json_at(tensor, "steps.margin_octaves"));
        if (!is_used(r, tensor) || columns <= r->columns) continue;
        r->columns = columns < COLUMNS ? columns : COLUMNS;
        r->first = first_of(tensor);
        r->stride = stride_of(tensor);
    }
    cJSON_ArrayForEach(tensor, ab_json_at(r->cell, "probes.tensors")) {
        if (is_used(r, tensor)) see_largest(r, tensor);
    }
}

/* Columns without a number are like the last one that has one. */
static bool fill_columns(reader *r) {
    int known = -1;
    for (int c = r->columns - 1; c >= 0; c--)
        if (r->high[c] > 0) known = c;
    for (int c = 0; c < r->columns && known >= 0; c++) {
        if (r->high[c] > 0) known = c;
        r->low[c] = r->low[known];
        r->high[c] = r->high[known];
    }
    return known >= 0;
}

/* Whether the next step was taken; then the largest was below its limit. */
static double bound_after(const reader *r, int64_t step) {
    for (int64_t next = step + 1; next < r->to->steps; next++)
        if (!r->to->step[next].skipped) return r->limit / r->to->step[next].scale * just_below;
    return (double)INFINITY;
}

/* A step that overflowed was at or above the limit of its scale, and its finite values are a lower bound; one
 * that was checked and taken was below. */
static void bound(reader *r, int64_t t, int column) {
    ab_recorded_step *s = &r->to->step[t];
    const double limit = r->limit / s->scale;
    s->low = r->low[column];
    s->high = r->high[column];
    if (!r->checked) return;
    if (s->skipped) {
        s->low = fmax(r->stride == 1 ? s->low : 0, limit * just_above);
        s->high = fmax(s->low, bound_after(r, t));
    } else {
        s->high = fmin(s->high, limit * just_below);
        s->low = fmin(s->low, s->high);
    }
}

static ab_status read_largest(reader *r) {
    read_columns(r);
    if (r->columns == 0 || !fill_columns(r))
        return ab_fail(AB_INPUT, "scaler: the recorded gradients have no finite non-zero value");
    for (int64_t t = 0; t < r->to->steps; t++) {
        const int64_t column = t < r->first ? 0 : (t - r->first) / r->stride;
        bound(r, t, column < r->columns ? (int)column : r->columns - 1);
    }
    return AB_OK;
}

/* ---- exponents -------------------------------------------------------------------------------- */

static int layer_called(ab_recorded *to, const char *name) {
    char clean[AB_REPLAY_NAME];
    ab_text_clean(clean, sizeof clean, name);
    for (int i = 0; i < to->layers; i++)
        if (strcmp(to->layer[i], clean) == 0) return i;
    if (to->layers == AB_RECORDED_LAYERS) return AB_RECORDED_LAYERS - 1;
    memcpy(to->layer[to->layers], clean, sizeof clean);
    return to->layers++;
}

static void add_mass(ab_recorded_mass *mass, int exponent, double count) {
    int at = exponent - AB_RECORDED_LOW;
    at = at < 0 ? 0 : at >= AB_RECORDED_EXPONENTS ? AB_RECORDED_EXPONENTS - 1 : at;
    mass->count[at + 1] += count;
    mass->energy[at + 1] += ldexp(count, 2 * exponent);
}

/* Counts by exponent of columns [from, to), divided among the scales of their steps. */
static void add_counts(const reader *r, const cJSON *counts, int exponent, int from, int to,
                       ab_recorded_mass *mass) {
    const cJSON *count;
    const double columns = to - from;
    cJSON_ArrayForEach(count, counts) {
        for (int c = from; c < to && count->valuedouble > 0; c++) {
            const double scale = scale_at(r, r->first + c * r->stride);
            add_mass(mass, exponent - (int)lround(log2(scale)), count->valuedouble / columns / columns);
        }
        exponent++;
    }
}

/* Columns of a period; WHOLE: a tensor has none. */
static int columns_of_period(const reader *r) {
    const cJSON *tensor;
    int columns = WHOLE;
    cJSON_ArrayForEach(tensor, ab_json_at(r->cell, "probes.tensors")) {
        if (!is_used(r, tensor)) continue;
        if (!ab_json_at(tensor, "periods.counts")) return WHOLE;
        columns = (int)whole(tensor, "periods.columns", 1, WHOLE - 1);
    }
    return columns;
}

static int end_of_period(const reader *r, int period) {
    const int end = (period + 1) * r->period_columns;
    return end < r->columns ? end : r->columns;
}

static void add_tensor(reader *r, const cJSON *tensor) {
    ab_recorded_mass *mass =
        &r->to->mass[layer_called(r->to, ab_json_text(tensor, "layer", "")) * AB_RECORDED_PERIODS];
    const cJSON *unscaled = ab_json_at(tensor, "unscaled"), *counts;
    if (r->period_columns == WHOLE) {
        const cJSON *from = unscaled ? unscaled : ab_json_at(tensor, "exponents");
        const double columns = r->columns;
        int exponent = exponent_of(from, "first");
        if (!unscaled) {
            add_counts(r, ab_json_at(from, "counts"), exponent, 0, r->columns, mass);
            return;
        }
        cJSON_ArrayForEach(counts, ab_json_at(from, "counts"))
            add_mass(mass, exponent++, fmax(counts->valuedouble, 0) / columns);
        return;
    }
    int period = 0;
    cJSON_ArrayForEach(counts, ab_json_at(tensor, "periods.counts")) {
        const int from = period * r->period_columns, to = end_of_period(r, period);
        if (to > from && period < r->to->periods)
            add_counts(r, counts, exponent_of(tensor, "periods.first"), from, to, &mass[period]);
        period++;
    }
}

static void accumulate(ab_recorded *to) {
    for (int i = 0; i < to->layers * AB_RECORDED_PERIODS; i++)
        for (int e = 0; e < AB_RECORDED_EXPONENTS; e++) {
            to->mass[i].count[e + 1] += to->mass[i].count[e];
            to->mass[i].energy[e + 1] += to->mass[i].energy[e];
        }
}

static ab_status read_exponents(reader *r) {
    const cJSON *tensor;
    r->period_columns = columns_of_period(r);
    r->to->periods =
        r->period_columns == WHOLE ? 1 : (r->columns + r->period_columns - 1) / r->period_columns;
    if (r->to->periods > AB_RECORDED_PERIODS) r->to->periods = AB_RECORDED_PERIODS;
    r->to->layer = calloc(AB_RECORDED_LAYERS, sizeof *r->to->layer);
    r->to->mass = calloc((size_t)AB_RECORDED_LAYERS * AB_RECORDED_PERIODS, sizeof *r->to->mass);
    if (!r->to->layer || !r->to->mass) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    cJSON_ArrayForEach(tensor, ab_json_at(r->cell, "probes.tensors")) {
        if (is_used(r, tensor)) add_tensor(r, tensor);
    }
    accumulate(r->to);
    for (int64_t t = 0; t < r->to->steps; t++) {
        const int64_t column = t < r->first ? 0 : (t - r->first) / r->stride, p = column / r->period_columns;
        r->to->step[t].period = p < r->to->periods ? (int)p : r->to->periods - 1;
    }
    return AB_OK;
}

/* ---- what reports say of it ------------------------------------------------------------------- */

static void describe(const reader *r) {
    ab_replay_source *s = &r->to->source;
    const ab_recorded *to = r->to;
    ab_text_clean(s->cell, sizeof s->cell, ab_json_text(r->cell, "id", ""));
    s->kind = "record";
    s->has_gradients = true;
    s->stride = r->stride;
    s->first_scale = to->step[0].scale;
    s->final_scale = to->step[to->steps - 1].scale;
    s->layers = to->layers;
    s->layer = to->layer;
}

static ab_status read_all(reader *r) {
    AB_TRY(read_steps(r));
    AB_TRY(read_largest(r));
    AB_TRY(read_exponents(r));
    describe(r);
    return AB_OK;
}

ab_status ab_recorded_of_document(const cJSON *document, const char *cell, const ab_format *half,
                                  ab_recorded *recorded) {
    *recorded = (ab_recorded){.half = half};
    reader *r = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    r->to = recorded;
    ab_status status = choose(document, cell, &r->cell);
    if (status == AB_OK && !half)
        status = ab_format_find(ab_json_text(r->cell, "half_format", ""), &recorded->half);
    if (status == AB_OK) {
        const ab_format *own = recorded->half;
        if (half) status = ab_format_find(ab_json_text(r->cell, "half_format", ""), &own);
        r->limit = ab_format_overflow_limit(own);
    }
    if (status == AB_OK) status = read_all(r);
    free(r);
    return status;
}
