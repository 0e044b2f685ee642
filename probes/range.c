/* The census counts values (kernels/census/census.h); this file adds the censuses of a step to the history of
 * a run. */
#include "probes/range.h"

#include "kernels/census/whatif.h"
#include "probes/columns.h"
#include "probes/interval.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Counts of a tensor's values by the effect of storing. */
typedef struct tally {
    int64_t nonzero, flushed, subnormal, normal, overflowed;
} tally;

/* Statistics of a tensor over the run. */
typedef struct history {
    int tensor; /* index in the setup */
    int64_t count, zero, nan, inf;
    tally total;
    ab_share_sums flushed_share;
    float min_abs, max_abs;
    int64_t exponent[AB_CENSUS_EXPONENTS];
    int64_t nonzero[AB_COLUMNS], flushed[AB_COLUMNS], overflowed[AB_COLUMNS];
    float largest[AB_COLUMNS];
    double energy[AB_COLUMNS]; /* sums of squares of the finite values */
} history;

/* Buffered values of one tensor: the census is several times faster on long arrays. */
enum { WAITING = 64 * 1024 };

typedef struct waiting_room {
    int slot;
    int64_t n;
    float value[WAITING];
} waiting_room;

struct ab_ranges {
    ab_probe_setup setup;
    int *slot; /* [setup.tensors]: index into `tensor`, or -1 */
    int tensors;
    history *tensor;
    ab_census *census;  /* [tensors][threads], of the current step */
    waiting_room *room; /* [threads] */
    ab_columns columns;
    int64_t steps;
    int64_t kept, normal, overflow; /* first bins (row-major) that are not flushed, normal, overflowed */
};

void ab_ranges_destroy(void *ranges) {
    ab_ranges *r = ranges;
    if (!r) return;
    free(r->slot);
    free(r->tensor);
    free(r->census);
    free(r->room);
    free(r);
}

/* ---- setup ----------------------------------------------------------------------------------- */

static int64_t bin_index(uint32_t magnitude) {
    if (magnitude >= AB_WHATIF_NEVER) return (int64_t)AB_CENSUS_EXPONENTS * AB_CENSUS_CLASSES;
    ab_census_place place = ab_census_bin(magnitude);
    return (int64_t)place.row * AB_CENSUS_CLASSES + place.column;
}

/* The bin that starts at a limit. The limits of the half formats coincide with bin boundaries. */
static ab_status first_bin(const ab_format *half, uint32_t limit, int64_t *bin) {
    *bin = bin_index(limit);
    if (bin_index(limit - 1) != *bin) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: a limit of its range lies inside a bin of the census", half->name);
}

static ab_status find_bins(ab_ranges *r) {
    const ab_format *half = r->setup.half;
    ab_whatif_limits limits;
    AB_TRY(ab_whatif_find_limits(half, 1.0f, AB_FTZ_NONE, &limits));
    AB_TRY(first_bin(half, limits.kept, &r->kept));
    AB_TRY(first_bin(half, limits.normal, &r->normal));
    return first_bin(half, limits.overflow, &r->overflow);
}

static ab_status allocate(ab_ranges *r, unsigned roles) {
    const ab_probe_setup *setup = &r->setup;
    r->slot = malloc(((size_t)setup->tensors + 1) * sizeof *r->slot);
    if (!r->slot) return AB_NO_MEMORY;
    for (int i = 0; i < setup->tensors; i++)
        r->slot[i] = roles >> setup->tensor[i].role & 1u ? r->tensors++ : -1;
    r->tensor = calloc((size_t)r->tensors + 1, sizeof *r->tensor);
    r->census = calloc((size_t)r->tensors * (size_t)setup->threads + 1, sizeof *r->census);
    r->room = calloc((size_t)setup->threads, sizeof *r->room);
    if (!r->tensor || !r->census || !r->room) return AB_NO_MEMORY;
    for (int i = 0; i < setup->tensors; i++)
        if (r->slot[i] >= 0) r->tensor[r->slot[i]].tensor = i;
    return AB_OK;
}

ab_status ab_ranges_create(const char *probe, const ab_probe_setup *setup, unsigned roles, void **ranges) {
    ab_ranges *r = calloc(1, sizeof *r);
    if (!r) return ab_fail(AB_NO_MEMORY, "probe %s: out of memory", probe);
    r->setup = *setup;
    r->columns.every = setup->every;
    ab_status status = find_bins(r);
    if (status == AB_OK && allocate(r, roles) != AB_OK)
        status = ab_fail(AB_NO_MEMORY, "probe %s: out of memory for %d tensors", probe, setup->tensors);
    if (status == AB_OK)
        *ranges = r;
    else
        ab_ranges_destroy(r);
    return status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void count_waiting(ab_ranges *r, int thread) {
    waiting_room *room = &r->room[thread];
    if (room->n > 0) ab_census_add(&r->census[room->slot * r->setup.threads + thread], room->value, room->n);
    room->n = 0;
}

void ab_ranges_observe(void *ranges, int tensor, int thread, const float *values, int64_t n) {
    ab_ranges *r = ranges;
    waiting_room *room = &r->room[thread];
    int slot = r->slot[tensor];
    if (slot < 0) return;
    if (room->slot != slot || room->n + n > WAITING) count_waiting(r, thread);
    if (n >= WAITING / 2) {
        ab_census_add(&r->census[slot * r->setup.threads + thread], values, n);
        return;
    }
    room->slot = slot;
    memcpy(room->value + room->n, values, (size_t)n * sizeof *values);
    room->n += n;
}

void ab_ranges_count(void *ranges, int tensor, const ab_census *census) {
    ab_ranges *r = ranges;
    if (r->slot[tensor] >= 0) ab_census_merge(&r->census[r->slot[tensor] * r->setup.threads], census);
}

static void count_row(const ab_ranges *r, const ab_census *census, int row, history *tensor, tally *step) {
    int64_t bin = (int64_t)row * AB_CENSUS_CLASSES;
    for (int c = 0; c < AB_CENSUS_CLASSES; c++, bin++) {
        int64_t count = census->bin[row][c];
        tensor->exponent[row] += count;
        step->nonzero += count;
        step->flushed += bin < r->kept ? count : 0;
        step->subnormal += bin >= r->kept && bin < r->normal ? count : 0;
        step->normal += bin >= r->normal && bin < r->overflow ? count : 0;
        step->overflowed += bin >= r->overflow ? count : 0;
    }
}

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Adds one census to its tensor and clears it; rows without values are skipped. */
static void add_census(const ab_ranges *r, ab_census *census, history *tensor, int column, tally *step) {
    if (census->count == 0) return;
    tensor->count += census->count;
    tensor->zero += census->zero;
    tensor->nan += census->nan;
    tensor->inf += census->pos_inf + census->neg_inf;
    tensor->energy[column] += census->sum_squares;
    if (census->max_abs > 0) {
        int low = ab_census_bin(bits_of(census->min_abs)).row;
        int high = ab_census_bin(bits_of(census->max_abs)).row;
        for (int row = low; row <= high; row++) count_row(r, census, row, tensor, step);
        memset(census->bin[low], 0, (size_t)(high - low + 1) * sizeof census->bin[0]);
        if (tensor->min_abs == 0 || census->min_abs < tensor->min_abs) tensor->min_abs = census->min_abs;
        tensor->max_abs = fmaxf(tensor->max_abs, census->max_abs);
        tensor->largest[column] = fmaxf(tensor->largest[column], census->max_abs);
    }
    memset(census, 0, offsetof(ab_census, bin));
}

static void add_step(history *tensor, const tally *step, int column) {
    tensor->total.nonzero += step->nonzero;
    tensor->total.flushed += step->flushed;
    tensor->total.subnormal += step->subnormal;
    tensor->total.normal += step->normal;
    tensor->total.overflowed += step->overflowed;
    tensor->nonzero[column] += step->nonzero;
    tensor->flushed[column] += step->flushed;
    tensor->overflowed[column] += step->overflowed;
    ab_share_add(&tensor->flushed_share, step->flushed, step->nonzero);
}

static void halve(history *tensor, int halvings) {
    ab_columns_halve(tensor->nonzero, halvings);
    ab_columns_halve(tensor->flushed, halvings);
    ab_columns_halve(tensor->overflowed, halvings);
    ab_columns_halve_max(tensor->largest, halvings);
    ab_columns_halve_sum(tensor->energy, halvings);
}

void ab_ranges_step_end(void *ranges, int64_t step) {
    ab_ranges *r = ranges;
    int halvings, column = ab_columns_at(&r->columns, step, &halvings);
    r->steps++;
    for (int i = 0; i < r->setup.threads; i++) count_waiting(r, i);
    for (int t = 0; t < r->tensors; t++) {
        tally counts = {0};
        halve(&r->tensor[t], halvings);
        for (int i = 0; i < r->setup.threads; i++)
            add_census(r, &r->census[t * r->setup.threads + i], &r->tensor[t], column, &counts);
        add_step(&r->tensor[t], &counts, column);
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

void ab_ranges_report_head(const ab_ranges *ranges, ab_probe_sink *sink) {
    sink->integer(sink, "steps_probed", ranges->steps);
    sink->text(sink, "format", ranges->setup.half->name);
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

/* Octaves from the largest magnitude to the smallest that overflows; negative after an overflow. Rounded to
 * 1/16, enough for a plot. */
static double margin_octaves(const ab_ranges *r, float largest) {
    if (largest == 0) return (double)NAN;
    return floor(16 * log2(ab_format_overflow_limit(r->setup.half) / (double)largest)) / 16;
}

static void report_steps(const ab_ranges *r, const history *tensor, ab_probe_sink *sink) {
    sink->begin_object(sink, "steps");
    ab_columns_report(&r->columns, sink);
    sink->integers(sink, "nonzero", tensor->nonzero, r->columns.count);
    sink->integers(sink, "flushed", tensor->flushed, r->columns.count);
    sink->integers(sink, "overflowed", tensor->overflowed, r->columns.count);
    sink->begin_array(sink, "margin_octaves");
    for (int i = 0; i < r->columns.count; i++)
        sink->number(sink, NULL, margin_octaves(r, tensor->largest[i]));
    sink->end(sink);
    sink->begin_array(sink, "energy");
    for (int i = 0; i < r->columns.count; i++) sink->number(sink, NULL, tensor->energy[i]);
    sink->end(sink);
    sink->end(sink);
}

static void report_counts(const history *tensor, ab_probe_sink *sink) {
    sink->integer(sink, "count", tensor->count);
    sink->integer(sink, "zero", tensor->zero);
    sink->integer(sink, "nan", tensor->nan);
    sink->integer(sink, "inf", tensor->inf);
    sink->integer(sink, "nonzero", tensor->total.nonzero);
    sink->integer(sink, "flushed", tensor->total.flushed);
    sink->integer(sink, "subnormal", tensor->total.subnormal);
    sink->integer(sink, "normal", tensor->total.normal);
    sink->integer(sink, "overflowed", tensor->total.overflowed);
}

/* Confidence interval of the flushed share over all steps of the run. */
static void report_interval(const ab_ranges *r, const history *tensor, ab_probe_sink *sink) {
    ab_interval interval = ab_share_interval(&tensor->flushed_share, r->steps, r->setup.steps);
    sink->begin_array(sink, "flushed_interval");
    sink->number(sink, NULL, interval.low);
    sink->number(sink, NULL, interval.high);
    sink->end(sink);
}

static void report_tensor(const ab_ranges *r, const history *tensor, ab_probe_sink *sink) {
    const ab_probe_tensor *about = &r->setup.tensor[tensor->tensor];
    bool any = tensor->total.nonzero > 0;
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    sink->text(sink, "kind", ab_probe_role_name(about->role));
    sink->boolean(sink, "cast", about->cast);
    report_counts(tensor, sink);
    sink->number(sink, "min_abs", any ? (double)tensor->min_abs : (double)NAN);
    sink->number(sink, "max_abs", any ? (double)tensor->max_abs : (double)NAN);
    sink->number(sink, "margin_octaves", margin_octaves(r, tensor->max_abs));
    report_interval(r, tensor, sink);
    report_exponents(tensor, sink);
    report_steps(r, tensor, sink);
    sink->end(sink);
}

void ab_ranges_report(const ab_ranges *ranges, const char *key, unsigned roles, ab_probe_sink *sink) {
    sink->begin_array(sink, key);
    for (int t = 0; t < ranges->tensors; t++)
        if (roles >> ranges->setup.tensor[ranges->tensor[t].tensor].role & 1u)
            report_tensor(ranges, &ranges->tensor[t], sink);
    sink->end(sink);
}
