/* Dispatches the events of a step to the probes and times them. Costs are kept per thread to avoid
 * contention. Probes compute with subnormals, also where training flushes them: they count what is there. */
#include "probes/set.h"

#include "kernels/core/subnormals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ab_probe_set {
    ab_observer observer; /* first */
    int64_t (*now_ns)(void);
    int count;
    const ab_probe_kind *kind[AB_MAX_PROBES];
    void *state[AB_MAX_PROBES];
    ab_probe_setup setup;
    int64_t *cost_ns; /* [threads][AB_MAX_PROBES] */
    int64_t steps;
    uint64_t replay_requests; /* bit set of probes that requested a replay of the current unprobed step */
    bool is_replay;           /* the step is replayed for them */
};

static int64_t no_clock(void) { return 0; }

ab_status ab_probe_set_create(uint64_t chosen, int64_t (*now_ns)(void), ab_probe_set **result) {
    ab_probe_set *set = calloc(1, sizeof *set);
    if (!set) return ab_fail(AB_NO_MEMORY, "probes: out of memory");
    set->now_ns = now_ns ? now_ns : no_clock;
    for (int i = 0; i < ab_probe_count(); i++)
        if (chosen >> i & 1u) set->kind[set->count++] = ab_probe_at(i);
    *result = set;
    return AB_OK;
}

void ab_probe_set_destroy(ab_probe_set *set) {
    if (!set) return;
    for (int p = 0; p < set->count; p++) set->kind[p]->destroy(set->state[p]);
    free(set->cost_ns);
    free(set);
}

static int64_t *cost_of(const ab_probe_set *set, int thread, int p) {
    return &set->cost_ns[thread * AB_MAX_PROBES + p];
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static void see(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    ab_probe_set *set = (ab_probe_set *)(void *)self;
    if (id < 0) return;
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    unsigned role = 1u << set->setup.tensor[id].role;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!(set->kind[p]->roles & role)) continue;
        set->kind[p]->see(set->state[p], id, thread, values, n);
        int64_t to = set->now_ns();
        *cost_of(set, thread, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

static bool counts(const ab_observer *self, int id) {
    const ab_probe_set *set = (const ab_probe_set *)(const void *)self;
    if (id < 0) return true; /* not observed */
    unsigned role = 1u << set->setup.tensor[id].role;
    for (int p = 0; p < set->count; p++)
        if (set->kind[p]->roles & role && !set->kind[p]->count) return false;
    return true;
}

static void count(ab_observer *self, int id, const struct ab_census *census) {
    ab_probe_set *set = (ab_probe_set *)(void *)self;
    if (id < 0) return;
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    unsigned role = 1u << set->setup.tensor[id].role;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!(set->kind[p]->roles & role)) continue;
        set->kind[p]->count(set->state[p], id, census);
        int64_t to = set->now_ns();
        *cost_of(set, 0, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

static void update(void *context, const ab_update_block *block) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!set->kind[p]->update) continue;
        set->kind[p]->update(set->state[p], block);
        int64_t to = set->now_ns();
        *cost_of(set, block->thread, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

/* Asks for all that any probe counts. */
static bool asks(void *context, int64_t taken, ab_update_question *question) {
    const ab_probe_set *set = context;
    const ab_probe_optimizer *optimizer = &set->setup.optimizer;
    for (int p = 0; p < set->count; p++)
        if (set->kind[p]->update && !set->kind[p]->counted) return false;
    *question = (ab_update_question){.second_moment = optimizer->second_moment,
                                     .beta2 = optimizer->beta2,
                                     .correction = 1 - pow(optimizer->beta2, (double)taken),
                                     .eps2 = optimizer->eps * optimizer->eps,
                                     .decay = optimizer->weight_decay};
    for (int p = 0; p < set->count; p++) question->rows = question->rows || set->kind[p]->rows;
    return true;
}

static void counted(void *context, int param, const ab_update_counts *counts) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!set->kind[p]->counted) continue;
        set->kind[p]->counted(set->state[p], param, counts);
        int64_t to = set->now_ns();
        *cost_of(set, 0, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

/* Whether a step is shown to probe p: a replay only to the probes that requested it. */
static bool shown(const ab_probe_set *set, int p) {
    return !set->is_replay || (set->replay_requests >> p & 1u);
}

static void ran(void *context, const ab_op_run *run) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!set->kind[p]->ran || !shown(set, p)) continue;
        set->kind[p]->ran(set->state[p], run);
        int64_t to = set->now_ns();
        *cost_of(set, 0, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

static void moved(void *context, const ab_move *move) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!set->kind[p]->moved || !shown(set, p)) continue;
        set->kind[p]->moved(set->state[p], move);
        int64_t to = set->now_ns();
        *cost_of(set, 0, p) += to - from;
        from = to;
    }
    ab_subnormals_set(before);
}

static bool wants_replay(void *context, int64_t step, double loss_scale) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    set->replay_requests = 0;
    for (int p = 0; p < set->count; p++)
        if (set->kind[p]->wants_replay && set->kind[p]->wants_replay(set->state[p], step, loss_scale))
            set->replay_requests |= (uint64_t)1 << p;
    set->is_replay = set->replay_requests != 0;
    ab_subnormals_set(before);
    return set->is_replay;
}

static void begin(void *context, int64_t step, double loss_scale) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    ab_probe_set *set = context;
    set->is_replay = false;
    for (int p = 0; p < set->count; p++)
        if (set->kind[p]->begin) set->kind[p]->begin(set->state[p], step, loss_scale);
    ab_subnormals_set(before);
}

ab_watch ab_probe_set_watch(ab_probe_set *set) {
    ab_watch watch = {.context = set, .begin = begin, .anywhere = true};
    for (int p = 0; p < set->count; p++) {
        const bool reads = set->kind[p]->ran || set->kind[p]->moved;
        watch.anywhere = watch.anywhere && (!reads || set->kind[p]->anywhere);
        watch.roles |= set->kind[p]->roles;
        if (set->kind[p]->ran) watch.ran = ran;
        if (set->kind[p]->moved) watch.moved = moved;
        if (set->kind[p]->wants_replay) watch.wants_replay = wants_replay;
        if (set->kind[p]->update) watch.update = update;
    }
    watch.asks = asks;
    watch.counted = counted;
    return watch;
}

ab_status ab_probe_set_start(ab_probe_set *set, const ab_probe_setup *setup) {
    set->setup = *setup;
    set->cost_ns = calloc((size_t)setup->threads * AB_MAX_PROBES, sizeof *set->cost_ns);
    if (!set->cost_ns) return ab_fail(AB_NO_MEMORY, "probes: out of memory");
    for (int p = 0; p < set->count; p++) AB_TRY(set->kind[p]->create(setup, &set->state[p]));
    set->observer = (ab_observer){see, counts, count};
    return AB_OK;
}

ab_observer *ab_probe_set_observer(ab_probe_set *set) { return &set->observer; }

void ab_probe_set_step_end(ab_probe_set *set, int64_t step) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    int64_t from = set->now_ns();
    for (int p = 0; p < set->count; p++) {
        if (!set->kind[p]->step_end) continue;
        set->kind[p]->step_end(set->state[p], step);
        int64_t to = set->now_ns();
        *cost_of(set, 0, p) += to - from;
        from = to;
    }
    set->steps++;
    ab_subnormals_set(before);
}

/* ---- report ---------------------------------------------------------------------------------- */

int64_t ab_probe_set_steps(const ab_probe_set *set) { return set->steps; }

static int64_t cost_on_all_lanes(const ab_probe_set *set, int p) {
    int64_t sum = 0;
    for (int thread = 0; thread < set->setup.threads; thread++) sum += *cost_of(set, thread, p);
    return sum;
}

int64_t ab_probe_set_cost_ns(const ab_probe_set *set) {
    int64_t sum = 0;
    for (int p = 0; p < set->count; p++) sum += cost_on_all_lanes(set, p);
    return sum / set->setup.threads;
}

static bool probes_gradients(const ab_probe_set *set) {
    for (int p = 0; p < set->count; p++)
        if (strcmp(set->kind[p]->name, "gradients") == 0) return true;
    return false;
}

static void report_nothing(const ab_probe_set *set, ab_probe_sink *sink) {
    sink->integer(sink, "steps_probed", set->steps);
    sink->text(sink, "format", set->setup.half->name);
    sink->begin_array(sink, "tensors");
    sink->end(sink);
}

void ab_probe_set_report(const ab_probe_set *set, ab_probe_sink *sink) {
    const ab_subnormals before = ab_subnormals_set(AB_SUBNORMALS_KEPT);
    if (!probes_gradients(set)) report_nothing(set, sink);
    for (int p = 0; p < set->count; p++) set->kind[p]->report(set->state[p], sink);
    sink->begin_array(sink, "costs");
    for (int p = 0; p < set->count; p++) {
        sink->begin_object(sink, NULL);
        sink->text(sink, "probe", set->kind[p]->name);
        sink->integer(sink, "cost_ns", cost_on_all_lanes(set, p));
        sink->end(sink);
    }
    sink->end(sink);
    ab_subnormals_set(before);
}
