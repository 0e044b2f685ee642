/* Rows of weights (output channels, output features, words) whose gradients would all be flushed to zero. Per
 * weight, a histogram of the rows' largest gradient magnitudes over the run, by exponent, unscaled and before
 * the optimizer: a row whose largest gradient is flushed at a given scale is not trained at that scale.
 * Memory: one number per row and one histogram per weight, independent of the length of the run. Vectors have
 * no rows. */
#include "kernels/census/census.h"
#include "probes/probe.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct rows {
    ab_probe_setup setup;
    _Atomic uint32_t **largest; /* [params][rows]: bits of the largest magnitude */
    int64_t steps;
} rows;

static void destroy(void *state) {
    rows *r = state;
    if (!r) return;
    for (int i = 0; r->largest && i < r->setup.params; i++) free(r->largest[i]);
    free(r->largest);
    free(r);
}

static ab_status create(const ab_probe_setup *setup, void **state) {
    rows *r = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "probe rows: out of memory");
    r->setup = *setup;
    r->largest = calloc((size_t)setup->params + 1, sizeof *r->largest);
    for (int i = 0; r->largest && i < setup->params; i++) {
        if (setup->param[i].rows < 1) continue;
        r->largest[i] = calloc((size_t)setup->param[i].rows, sizeof *r->largest[i]);
        if (r->largest[i]) continue;
        destroy(r);
        return ab_fail(AB_NO_MEMORY, "probe rows: out of memory for %s", setup->param[i].name);
    }
    if (!r->largest) {
        destroy(r);
        return ab_fail(AB_NO_MEMORY, "probe rows: out of memory");
    }
    *state = r;
    return AB_OK;
}

static void raise_to(_Atomic uint32_t *largest, uint32_t bits) {
    uint32_t old = atomic_load_explicit(largest, memory_order_relaxed);
    while (bits > old && !atomic_compare_exchange_weak_explicit(largest, &old, bits, memory_order_relaxed,
                                                                memory_order_relaxed)) {
    }
}

/* Blocks of one weight arrive on any thread, and a row may span several blocks. */
static void update(void *state, const ab_update_block *block) {
    rows *r = state;
    const ab_probe_param *about = &r->setup.param[block->param];
    if (about->rows < 1) return;
    const int64_t width = about->count / about->rows;
    for (int64_t i = 0; i < block->n;) {
        const int64_t row = (block->first + i) / width, end = (row + 1) * width - block->first;
        uint32_t most = 0;
        for (; i < block->n && i < end; i++) {
            uint32_t bits;
            memcpy(&bits, &block->grad[i], sizeof bits);
            bits &= 0x7FFFFFFF;
            if (bits < 0x7F800000 && bits > most) most = bits;
        }
        raise_to(&r->largest[block->param][row], most);
    }
}

static void counted(void *state, int param, const ab_update_counts *counts) {
    rows *r = state;
    for (int64_t i = 0; i < counts->rows; i++) raise_to(&r->largest[param][i], counts->largest[i]);
}

static void step_end(void *state, int64_t step) {
    (void)step;
    ((rows *)state)->steps++;
}

static void report_param(const rows *r, int param, ab_probe_sink *sink) {
    const ab_probe_param *about = &r->setup.param[param];
    int64_t exponent[AB_CENSUS_EXPONENTS] = {0}, never = 0;
    int first = 0, last = AB_CENSUS_EXPONENTS - 1;
    for (int64_t i = 0; i < about->rows; i++) {
        const uint32_t bits = r->largest[param][i];
        if (bits == 0)
            never++;
        else
            exponent[ab_census_bin(bits).row]++;
    }
    while (first < last && exponent[first] == 0) first++;
    while (last > first && exponent[last] == 0) last--;
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    sink->integer(sink, "rows", about->rows);
    sink->integer(sink, "never", never);
    sink->begin_object(sink, "exponents");
    sink->integer(sink, "first", AB_CENSUS_EMIN + first);
    sink->integers(sink, "counts", exponent + first, last - first + 1);
    sink->end(sink);
    sink->end(sink);
}

static void report(void *state, ab_probe_sink *sink) {
    const rows *r = state;
    sink->begin_array(sink, "rows");
    for (int i = 0; i < r->setup.params; i++)
        if (r->setup.param[i].rows > 0) report_param(r, i, sink);
    sink->end(sink);
}

extern const ab_probe_kind ab_probe_rows;
const ab_probe_kind ab_probe_rows = {
    .name = "rows",
    .text = "rows of weights that a flush would leave without a gradient (for `ampbench advise`)",
    .create = create,
    .destroy = destroy,
    .update = update,
    .counted = counted,
    .rows = true,
    .step_end = step_end,
    .report = report,
};
