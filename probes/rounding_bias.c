/* Rounding bias: the mean signed rounding error of a tensor in units of the last place, and its distance from
 * zero in standard errors. Rounding to nearest has no bias; truncation reduces every magnitude by half a unit
 * on average; bias, not size, lets small errors accumulate over steps (Qiu and Yao, arXiv 2510.04212).
 *
 * Covers casts of gradients and activations to the half format, whose rounding is repeated here, and stores
 * of weights, where the error is relative to before + update in double. "Outward" errors are positive if they
 * increase the magnitude. Errors are integers in units of 2^-20, so sums do not depend on the order; only
 * values that are finite and non-zero before, and finite after, count. */
#include "kernels/format/convert.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_BITS = 20, SQUARE_SHIFT = 10, BLOCK = 2048 };

typedef struct errors {
    int64_t n, sum, outward; /* stored - exact; the same times the sign of exact */
    int64_t square;          /* in units of 2^-30 */
} errors;

/* Totals over the run. */
typedef struct totals {
    double n, sum, outward, square;
} totals;

typedef struct rounding_bias {
    ab_probe_setup setup;
    int subjects; /* the setup's tensors, then its parameters */
    errors *step; /* [subjects][threads] */
    totals *total;
} rounding_bias;

static void destroy(void *state) {
    rounding_bias *r = state;
    if (!r) return;
    free(r->step);
    free(r->total);
    free(r);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    rounding_bias *r = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "probe rounding_bias: out of memory");
    r->setup = *setup;
    r->subjects = setup->tensors + setup->params;
    r->step = calloc((size_t)r->subjects * (size_t)setup->threads + 1, sizeof *r->step);
    r->total = calloc((size_t)r->subjects + 1, sizeof *r->total);
    if (!r->step || !r->total) {
        destroy(r);
        return ab_fail(AB_NO_MEMORY, "probe rounding_bias: out of memory for %d tensors", setup->tensors);
    }
    *state = r;
    return AB_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(1023 + exponent) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static int exponent_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52 & 0x7FFu) - 1023;
}

static inline void add_error(errors *e, const ab_format *format, double exact, double stored) {
    if (exact == 0 || exact - exact != 0 || stored - stored != 0) return;
    int exponent = exponent_of(exact);
    if (exponent < format->emin) exponent = format->emin;
    double scaled = (stored - exact) * power_of_two(UNIT_BITS + format->precision - 1 - exponent);
    int64_t error = llrint(fmin(fmax(scaled, -0x1p24), 0x1p24));
    e->n++;
    e->sum += error;
    e->outward += exact < 0 ? -error : error;
    e->square += (error * error) >> SQUARE_SHIFT;
}

static void see(void *state, int tensor, int thread, const float *values, int64_t n) {
    rounding_bias *r = state;
    if (!r->setup.tensor[tensor].cast) return;
    errors *e = &r->step[tensor * r->setup.threads + thread];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t part = n - at < BLOCK ? n - at : BLOCK;
        double packed[BLOCK]; /* large enough for any storage type */
        float stored[BLOCK];
        ab_narrow(packed, r->setup.half, values + at, part);
        ab_widen(stored, packed, r->setup.half, part);
        for (int64_t i = 0; i < part; i++)
            add_error(e, r->setup.half, (double)values[at + i], (double)stored[i]);
    }
}

static void update(void *state, const ab_update_block *block) {
    rounding_bias *r = state;
    int subject = r->setup.tensors + block->param;
    errors *e = &r->step[subject * r->setup.threads + block->thread];
    const ab_format *format = r->setup.param[block->param].format;
    for (int64_t i = 0; i < block->n; i++)
        if (block->update[i] != 0)
            add_error(e, format, (double)block->before[i] + block->update[i], (double)block->stored[i]);
}

/* ---- a step, and the report ------------------------------------------------------------------ */

static void step_end(void *state, int64_t step) {
    rounding_bias *r = state;
    (void)step;
    for (int s = 0; s < r->subjects; s++) {
        totals *total = &r->total[s];
        for (int i = 0; i < r->setup.threads; i++) {
            errors *e = &r->step[s * r->setup.threads + i];
            total->n += (double)e->n;
            total->sum += (double)e->sum;
            total->outward += (double)e->outward;
            total->square += (double)e->square;
            *e = (errors){0};
        }
    }
}

static void report_mean(const totals *t, const char *mean_key, const char *z_key, double sum,
                        ab_probe_sink *sink) {
    double mean = ldexp(sum / t->n, -UNIT_BITS);
    double variance = ldexp(t->square / t->n, SQUARE_SHIFT - 2 * UNIT_BITS) - mean * mean;
    sink->number(sink, mean_key, mean);
    sink->number(sink, z_key, variance > 0 ? mean * sqrt(t->n / variance) : (double)NAN);
}

static void report_subject(const rounding_bias *r, int s, ab_probe_sink *sink) {
    const totals *total = &r->total[s];
    bool weight = s >= r->setup.tensors;
    if (total->n == 0) return;
    const ab_probe_tensor *tensor = weight ? NULL : &r->setup.tensor[s];
    const ab_probe_param *param = weight ? &r->setup.param[s - r->setup.tensors] : NULL;
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", weight ? param->name : tensor->name);
    sink->text(sink, "layer", weight ? param->layer : tensor->layer);
    sink->text(sink, "kind", ab_probe_role_name(weight ? AB_ROLE_WEIGHT : tensor->role));
    sink->text(sink, "format", weight ? param->format->name : r->setup.half->name);
    sink->integer(sink, "rounded", (int64_t)total->n);
    report_mean(total, "mean_ulp", "z", total->sum, sink);
    report_mean(total, "mean_outward_ulp", "z_outward", total->outward, sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const rounding_bias *r = state;
    sink->begin_array(sink, "rounding_bias");
    for (int s = 0; s < r->subjects; s++) report_subject(r, s, sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_rounding_bias;
const ab_probe_kind ab_probe_rounding_bias = {
    .name = "rounding_bias",
    .text = "mean signed rounding error of casts and stored weights, with its z-score",
    .roles = AB_SEES_GRADIENTS | AB_SEES_ACTIVATIONS,
    .create = create,
    .destroy = destroy,
    .see = see,
    .update = update,
    .step_end = step_end,
    .report = report,
};
