/* Gradients against the half format's range: per tensor an exponent histogram and counts of zero, flushed, subnormal, normal,
 * overflowed, inf and nan, in all and over the steps. Bounded: however long the run, a tensor keeps COLUMNS step columns;
 * when they are full, neighbours are merged. */
#include "kernels/census.h"
#include "probes/probe.h"

#include <math.h>
#include <stdlib.h>

enum { COLUMNS = 128 };

/* What storing did to the values of a tensor, in all or in one column of steps. */
typedef struct tally {
    int64_t nonzero, flushed, subnormal, normal, overflowed;
} tally;

typedef struct history {
    int64_t count, zero, nan, inf;
    tally total;
    float min_abs, max_abs;
    int64_t exponent[AB_CENSUS_EXPONENTS];
    tally column[COLUMNS];
} history;

typedef struct gradients {
    ab_probe_setup setup;
    ab_census *census; /* [tensors][threads], of the step under way */
    history *tensor;
    int64_t first_step, stride; /* of the columns: `stride` training steps each */
    int64_t steps, every;       /* probed steps so far; training steps from one to the next */
    int columns;
    int64_t per_column, in_last; /* probed steps a full column holds, and the last one has */
} gradients;

static void destroy(void *state) {
    gradients *g = state;
    if (!g) return;
    free(g->census);
    free(g->tensor);
    free(g);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    gradients *g = calloc(1, sizeof *g);
    if (!g) return ab_fail(AB_NO_MEMORY, "probe gradients: out of memory");
    size_t tensors = (size_t)(setup->tensors ? setup->tensors : 1);
    g->setup = *setup;
    g->per_column = 1;
    g->census = calloc(tensors * (size_t)setup->threads, sizeof *g->census);
    g->tensor = calloc(tensors, sizeof *g->tensor);
    if (!g->census || !g->tensor) {
        destroy(g);
        return ab_fail(AB_NO_MEMORY, "probe gradients: out of memory for %d tensors", setup->tensors);
    }
    for (size_t i = 0; i < tensors * (size_t)setup->threads; i++) ab_census_clear(&g->census[i]);
    *state = g;
    return AB_OK;
}

static void see(void *state, int tensor, int thread, const float *values, int64_t n) {
    gradients *g = state;
    ab_census_add(&g->census[tensor * g->setup.threads + thread], values, n);
}

static void add_tally(tally *into, const tally *from) {
    into->nonzero += from->nonzero;
    into->flushed += from->flushed;
    into->subnormal += from->subnormal;
    into->normal += from->normal;
    into->overflowed += from->overflowed;
}

/* Halves the number of columns by merging neighbours. */
static void merge_columns(gradients *g) {
    for (int t = 0; t < g->setup.tensors; t++) {
        tally *column = g->tensor[t].column;
        for (int i = 0; i < COLUMNS / 2; i++) {
            tally sum = column[2 * i];
            add_tally(&sum, &column[2 * i + 1]);
            column[i] = sum;
        }
        for (int i = COLUMNS / 2; i < COLUMNS; i++) column[i] = (tally){0};
    }
    g->columns = COLUMNS / 2;
    g->per_column *= 2;
    g->in_last = g->per_column;
}

static void next_column(gradients *g) {
    if (g->columns > 0 && g->in_last < g->per_column) {
        g->in_last++;
        return;
    }
    if (g->columns == COLUMNS) merge_columns(g);
    g->columns++;
    g->in_last = 1;
}

static void fold(history *tensor, const ab_census *census, const ab_format *half, int column) {
    ab_whatif stored;
    if (ab_census_whatif(census, half, 0, &stored) != AB_OK)
        return; /* every storable half format is supported */
    tally step = {ab_census_nonzero(census), stored.flushed, stored.subnormal, stored.normal,
                  stored.overflowed};
    tensor->count += census->count;
    tensor->zero += census->zero;
    tensor->nan += census->nan;
    tensor->inf += census->pos_inf + census->neg_inf;
    add_tally(&tensor->total, &step);
    add_tally(&tensor->column[column], &step);
    if (census->min_abs > 0 && (tensor->min_abs == 0 || census->min_abs < tensor->min_abs))
        tensor->min_abs = census->min_abs;
    if (census->max_abs > tensor->max_abs) tensor->max_abs = census->max_abs;
    for (int e = 0; e < AB_CENSUS_EXPONENTS; e++)
        for (int c = 0; c < AB_CENSUS_CLASSES; c++) tensor->exponent[e] += census->bin[e][c];
}

static void step_end(void *state, int64_t step) {
    gradients *g = state;
    if (g->steps == 0) g->first_step = step;
    if (g->steps == 1) g->every = step - g->first_step;
    g->steps++;
    next_column(g);
    for (int t = 0; t < g->setup.tensors; t++) {
        ab_census *census = &g->census[t * g->setup.threads];
        for (int i = 1; i < g->setup.threads; i++) {
            ab_census_merge(&census[0], &census[i]);
            ab_census_clear(&census[i]);
        }
        fold(&g->tensor[t], &census[0], g->setup.half, g->columns - 1);
        ab_census_clear(&census[0]);
    }
}

static void report_exponents(const history *tensor, ab_probe_sink *sink) {
    int first = 0, last = AB_CENSUS_EXPONENTS - 1;
    while (first < last && tensor->exponent[first] == 0) first++;
    while (last > first && tensor->exponent[last] == 0) last--;
    sink->begin_object(sink, "exponents");
    sink->integer(sink, "first", AB_CENSUS_EMIN + first);
    sink->integers(sink, "counts", tensor->exponent + first, last - first + 1);
    sink->end(sink);
}

static void report_column(const gradients *g, const history *tensor, const char *key, size_t field,
                          ab_probe_sink *sink) {
    int64_t value[COLUMNS];
    for (int i = 0; i < g->columns; i++)
        value[i] = *(const int64_t *)(const void *)((const char *)&tensor->column[i] + field);
    sink->integers(sink, key, value, g->columns);
}

static void report_steps(const gradients *g, const history *tensor, ab_probe_sink *sink) {
    sink->begin_object(sink, "steps");
    sink->integer(sink, "first", g->first_step);
    sink->integer(sink, "stride", (g->every ? g->every : 1) * g->per_column);
    sink->integer(sink, "count", g->columns);
    report_column(g, tensor, "nonzero", offsetof(tally, nonzero), sink);
    report_column(g, tensor, "flushed", offsetof(tally, flushed), sink);
    report_column(g, tensor, "overflowed", offsetof(tally, overflowed), sink);
    sink->end(sink);
}

static void report_tensor(const gradients *g, int t, ab_probe_sink *sink) {
    static const char *const roles[] = {"weight_gradient", "activation_gradient"};
    const ab_probe_tensor *about = &g->setup.tensor[t];
    const history *tensor = &g->tensor[t];
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    sink->text(sink, "kind", roles[about->role]);
    sink->boolean(sink, "cast", about->cast);
    sink->integer(sink, "count", tensor->count);
    sink->integer(sink, "zero", tensor->zero);
    sink->integer(sink, "nan", tensor->nan);
    sink->integer(sink, "inf", tensor->inf);
    sink->integer(sink, "nonzero", tensor->total.nonzero);
    sink->integer(sink, "flushed", tensor->total.flushed);
    sink->integer(sink, "subnormal", tensor->total.subnormal);
    sink->integer(sink, "normal", tensor->total.normal);
    sink->integer(sink, "overflowed", tensor->total.overflowed);
    bool any = tensor->total.nonzero > 0;
    sink->number(sink, "min_abs", any ? (double)tensor->min_abs : (double)NAN);
    sink->number(sink, "max_abs", any ? (double)tensor->max_abs : (double)NAN);
    report_exponents(tensor, sink);
    report_steps(g, tensor, sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    gradients *g = state;
    sink->integer(sink, "steps_probed", g->steps);
    sink->text(sink, "format", g->setup.half->name);
    sink->begin_array(sink, "tensors");
    for (int t = 0; t < g->setup.tensors; t++) report_tensor(g, t, sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_gradients;
const ab_probe_kind ab_probe_gradients = {
    .name = "gradients",
    .text = "weight and activation gradients against the half format's range",
    .create = create,
    .destroy = destroy,
    .see = see,
    .step_end = step_end,
    .report = report,
};
