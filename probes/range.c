/* Censuses of the tensors of a step, from the values of several threads. */
#include "probes/range.h"

#include "probes/range_counts.h"

#include <stdlib.h>
#include <string.h>

/* Statistics of a tensor over the run. */
typedef struct history {
    int tensor; /* index in the setup */
    ab_range_history range;
    ab_range_periods periods;
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
    ab_range_bins bins;
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
    ab_status status = ab_range_find_bins(r->setup.half, &r->bins);
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

void ab_ranges_step_end(void *ranges, int64_t step) {
    ab_ranges *r = ranges;
    int halvings, column = ab_columns_at(&r->columns, step, &halvings);
    r->steps++;
    for (int i = 0; i < r->setup.threads; i++) count_waiting(r, i);
    for (int t = 0; t < r->tensors; t++) {
        ab_range_counts counts = {.count = 0};
        ab_range_halve(&r->tensor[t].range, halvings);
        ab_range_halve_periods(&r->tensor[t].periods, halvings);
        for (int i = 0; i < r->setup.threads; i++)
            ab_range_take(&r->bins, &r->census[t * r->setup.threads + i], &counts);
        ab_range_step(&r->tensor[t].range, &counts, column);
        ab_range_step_periods(&r->tensor[t].periods, &counts, column);
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

void ab_ranges_report_head(const ab_ranges *ranges, ab_probe_sink *sink) {
    sink->integer(sink, "steps_probed", ranges->steps);
    sink->text(sink, "format", ranges->setup.half->name);
}

static void report_tensor(const ab_ranges *r, const history *tensor, ab_probe_sink *sink) {
    const ab_probe_tensor *about = &r->setup.tensor[tensor->tensor];
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    sink->text(sink, "kind", ab_probe_role_name(about->role));
    sink->boolean(sink, "cast", about->cast);
    ab_range_report(&tensor->range, r->setup.half, &r->columns, r->steps, r->setup.steps, sink);
    if (AB_SEES_GRADIENTS >> about->role & 1u)
        ab_range_report_periods(&tensor->range, &tensor->periods, &r->columns, sink);
    sink->end(sink);
}

void ab_ranges_report(const ab_ranges *ranges, const char *key, unsigned roles, ab_probe_sink *sink) {
    sink->begin_array(sink, key);
    for (int t = 0; t < ranges->tensors; t++)
        if (roles >> ranges->setup.tensor[ranges->tensor[t].tensor].role & 1u)
            report_tensor(ranges, &ranges->tensor[t], sink);
    sink->end(sink);
}
