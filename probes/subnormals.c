/* Subnormal operands: how many values of the state that training computes with are subnormal in fp32. Many
 * CPUs are far slower on them. Counted before every probed update: weights, their unscaled gradients, the
 * optimizer's state as it was read; and the gradients of activations. A stored half counts by its value in
 * fp32, since halves are computed there: none of fp16's subnormals is one, all of bf16's are. Counts are of
 * bits, exact in every mode of kernels/core/subnormals.h, and independent of threads. */
#include "kernels/census/census.h"
#include "probes/columns.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHT, WEIGHT_GRADIENT, STATE };

/* Magnitudes (bits) above `low` and below `high` are subnormal operands. */
typedef struct limits {
    uint32_t low, high;
} limits;

/* Counts of one tensor and kind. */
typedef struct tally {
    int64_t values, subnormal;
} tally;

typedef struct operand {
    const char *name, *layer, *kind;
    tally total;
    int64_t first_step; /* with a subnormal value; -1: none */
} operand;

typedef struct subnormals {
    ab_probe_setup setup;
    int kinds;    /* of a parameter: weight, gradient, the optimizer's states */
    int operands; /* params * kinds, then one for every tensor of the setup */
    operand *operand;
    tally *step; /* [threads][operands], of the current step */
    limits cast; /* of values that are rounded to the half format before they are read */
    ab_columns columns;
    int64_t values[AB_COLUMNS], subnormal[AB_COLUMNS];
} subnormals;

/* ---- setup ----------------------------------------------------------------------------------- */

static const limits fp32_limits = {0, 0x00800000};

/* Values that round to a number of `half` that is subnormal in fp32: above half its smallest subnormal (a tie
 * goes to zero) and below the tie that goes to the smallest normal. */
static limits limits_after(const ab_format *half) {
    const uint32_t tie = half->precision < 24 ? UINT32_C(1) << (23 - half->precision) : 0;
    if (half->emin > -126) return (limits){0, 0};
    return (limits){tie, fp32_limits.high - tie};
}

static int states_of(const ab_probe_optimizer *optimizer) {
    int states = 0;
    while (states < AB_UPDATE_STATES && optimizer->state[states]) states++;
    return states;
}

static void name_operands(subnormals *s) {
    const ab_probe_setup *setup = &s->setup;
    for (int p = 0; p < setup->params; p++)
        for (int k = 0; k < s->kinds; k++) {
            const char *kind = k == WEIGHT            ? "weight"
                               : k == WEIGHT_GRADIENT ? "weight_gradient"
                                                      : setup->optimizer.state[k - STATE];
            s->operand[p * s->kinds + k] =
                (operand){setup->param[p].name, setup->param[p].layer, kind, {0, 0}, -1};
        }
    for (int t = 0; t < setup->tensors; t++)
        s->operand[setup->params * s->kinds + t] =
            (operand){setup->tensor[t].name, setup->tensor[t].layer, "activation_gradient", {0, 0}, -1};
}

static void destroy(void *state) {
    subnormals *s = state;
    if (!s) return;
    free(s->operand);
    free(s->step);
    free(s);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    subnormals *s = calloc(1, sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "probe subnormals: out of memory");
    s->setup = *setup;
    s->columns.every = setup->every;
    s->cast = limits_after(setup->half);
    s->kinds = STATE + states_of(&setup->optimizer);
    s->operands = setup->params * s->kinds + setup->tensors;
    s->operand = calloc((size_t)s->operands + 1, sizeof *s->operand);
    s->step = calloc((size_t)s->operands * (size_t)setup->threads + 1, sizeof *s->step);
    if (!s->operand || !s->step) {
        destroy(s);
        return ab_fail(AB_NO_MEMORY, "probe subnormals: out of memory for %d tensors",
                       setup->params + setup->tensors);
    }
    name_operands(s);
    *state = s;
    return AB_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* A loop that compilers vectorise. */
static int64_t count_values(const float *value, int64_t n, limits of) {
    const uint32_t width = of.high > of.low ? of.high - of.low - 1 : 0;
    int64_t count = 0;
    for (int64_t first = 0; first < n; first += AB_UPDATE_BLOCK) {
        const int64_t end = n - first < AB_UPDATE_BLOCK ? n : first + AB_UPDATE_BLOCK;
        uint32_t block = 0;
        for (int64_t i = first; i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &value[i], sizeof bits);
            block += (bits & 0x7FFFFFFFu) - of.low - 1 < width;
        }
        count += block;
    }
    return count;
}

static void add(subnormals *s, int place, int thread, const float *value, int64_t n, limits of) {
    tally *step = &s->step[thread * s->operands + place];
    step->values += n;
    step->subnormal += count_values(value, n, of);
}

static void update(void *state, const ab_update_block *block) {
    subnormals *s = state;
    const int first = block->param * s->kinds;
    add(s, first + WEIGHT, block->thread, block->before, block->n, fp32_limits);
    add(s, first + WEIGHT_GRADIENT, block->thread, block->grad, block->n, fp32_limits);
    for (int k = STATE; k < s->kinds; k++)
        add(s, first + k, block->thread, block->state_before[k - STATE], block->n, fp32_limits);
}

/* The device's counts are in the same order: weight, gradient, states. */
static void counted(void *state, int param, const ab_update_counts *counts) {
    subnormals *s = state;
    for (int64_t r = 0; r < counts->runs; r++)
        for (int k = 0; k < s->kinds; k++)
            s->step[param * s->kinds + k].subnormal += counts->run[r].subnormal[k];
    for (int k = 0; k < s->kinds; k++) s->step[param * s->kinds + k].values += counts->count;
}

static limits limits_of(const subnormals *s, int tensor) {
    return s->setup.tensor[tensor].cast ? s->cast : fp32_limits;
}

static void see(void *state, int tensor, int thread, const float *values, int64_t n) {
    subnormals *s = state;
    if (s->setup.tensor[tensor].role != AB_ROLE_ACTIVATION_GRADIENT) return;
    add(s, s->setup.params * s->kinds + tensor, thread, values, n, limits_of(s, tensor));
}

static int bin_index(uint32_t magnitude) {
    const ab_census_place place = ab_census_bin(magnitude);
    return place.row * AB_CENSUS_CLASSES + place.column;
}

/* A bin of the census begins at both limits of every half format. */
static int64_t count_bins(const ab_census *census, limits of) {
    const int end = of.high > of.low ? bin_index(of.high) : 0;
    int64_t count = 0;
    for (int bin = bin_index(of.low + 1); bin < end; bin++)
        count += census->bin[bin / AB_CENSUS_CLASSES][bin % AB_CENSUS_CLASSES];
    return count;
}

static void count(void *state, int tensor, const ab_census *census) {
    subnormals *s = state;
    if (s->setup.tensor[tensor].role != AB_ROLE_ACTIVATION_GRADIENT) return;
    tally *step = &s->step[s->setup.params * s->kinds + tensor];
    step->values += census->count;
    step->subnormal += count_bins(census, limits_of(s, tensor));
}

/* Sums one operand over the threads and empties its counts. */
static tally take(subnormals *s, int place) {
    tally sum = {0, 0};
    for (int thread = 0; thread < s->setup.threads; thread++) {
        tally *step = &s->step[thread * s->operands + place];
        sum.values += step->values;
        sum.subnormal += step->subnormal;
        *step = (tally){0, 0};
    }
    return sum;
}

static void step_end(void *state, int64_t step) {
    subnormals *s = state;
    int halvings, column = ab_columns_at(&s->columns, step, &halvings);
    ab_columns_halve(s->values, halvings);
    ab_columns_halve(s->subnormal, halvings);
    for (int i = 0; i < s->operands; i++) {
        const tally sum = take(s, i);
        operand *o = &s->operand[i];
        o->total.values += sum.values;
        o->total.subnormal += sum.subnormal;
        if (sum.subnormal > 0 && o->first_step < 0) o->first_step = step;
        s->values[column] += sum.values;
        s->subnormal[column] += sum.subnormal;
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_operand(const operand *o, ab_probe_sink *sink) {
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", o->name);
    sink->text(sink, "layer", o->layer);
    sink->text(sink, "kind", o->kind);
    sink->integer(sink, "values", o->total.values);
    sink->integer(sink, "subnormal", o->total.subnormal);
    sink->integer(sink, "first_step", o->first_step);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const subnormals *s = state;
    tally all = {0, 0};
    for (int i = 0; i < s->columns.count; i++) {
        all.values += s->values[i];
        all.subnormal += s->subnormal[i];
    }
    sink->begin_object(sink, "subnormals");
    sink->integer(sink, "values", all.values);
    sink->integer(sink, "subnormal", all.subnormal);
    sink->begin_object(sink, "steps");
    ab_columns_report(&s->columns, sink);
    sink->integers(sink, "values", s->values, s->columns.count);
    sink->integers(sink, "subnormal", s->subnormal, s->columns.count);
    sink->end(sink);
    sink->begin_array(sink, "operands");
    for (int i = 0; i < s->operands; i++)
        if (s->operand[i].total.subnormal > 0) report_operand(&s->operand[i], sink);
    sink->end(sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_subnormals;
const ab_probe_kind ab_probe_subnormals = {
    .name = "subnormals",
    .text = "weights, gradients and optimizer state that are subnormal in fp32, which many CPUs are slow on",
    .standard = true,
    .roles = 1u << AB_ROLE_ACTIVATION_GRADIENT,
    .create = create,
    .destroy = destroy,
    .see = see,
    .count = count,
    .update = update,
    .counted = counted,
    .step_end = step_end,
    .report = report,
};
