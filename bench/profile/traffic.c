/* Walks over the memory of two steps; see traffic.h. */
#include "bench/profile/traffic.h"

#include "bench/profile/reuse.h"
#include "bench/train/pass/step_times.h"

#include <stdlib.h>
#include <string.h>

/* A step's passes over memory as the plan lays it out: pools, then blocks of their own. */
typedef struct walk {
    const ab_step_operands *step;
    int64_t *first; /* [tensors]: of the tensor's bytes; owned */
    int64_t bytes, granule, touched;
    ab_reuse *reuse; /* owned; NULL: only count */
    ab_traffic *to;  /* of the pass */
} walk;

static void touch(void *context, int tensor, bool written) {
    walk *w = context;
    const int64_t bytes = ab_work_bytes(w->step->plan, tensor), first = bytes ? w->first[tensor] : 0;
    w->touched += ab_reuse_granules(w->granule, first, bytes);
    if (w->reuse && bytes > 0) ab_reuse_touch(w->reuse, first, bytes, written, w->to);
}

static ab_status lay_out(walk *w) {
    const ab_plan *plan = w->step->plan;
    int64_t pool[AB_MEM_CATEGORY_COUNT];
    w->first = calloc((size_t)plan->tensors + 1, sizeof *w->first);
    if (!w->first) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) {
        pool[c] = w->bytes;
        w->bytes += plan->pool_bytes[c];
    }
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        w->first[i] = t->transient ? pool[t->category] + t->offset : w->bytes;
        if (t->shares != AB_NONE)
            w->first[i] = w->first[t->shares];
        else if (!t->transient)
            w->bytes += t->bytes;
    }
    return AB_OK;
}

static void begin(walk *w, ab_traffic *to) {
    w->to = to;
    if (w->reuse) ab_reuse_begin_pass(w->reuse);
}

/* One batch and its update; traffic: of every node's passes, then of the parts. */
static void walk_step(walk *w, ab_traffic *traffic) {
    const int nodes = w->step->plan->nodes;
    ab_traffic *part = traffic + nodes * AB_TIMED_PASSES;
    for (int n = 0; n < nodes; n++) {
        begin(w, &traffic[n * AB_TIMED_PASSES + AB_TIMED_FORWARD]);
        w->step->node(w->step->of, n, AB_TIMED_FORWARD, touch, w);
    }
    for (int n = nodes - 1; n >= 0; n--)
        for (int pass = AB_TIMED_BACKWARD; pass <= AB_TIMED_SUMS; pass++) {
            begin(w, &traffic[n * AB_TIMED_PASSES + pass]);
            w->step->node(w->step->of, n, pass, touch, w);
        }
    for (int p = 0; p < AB_TIMED_PARTS; p++) {
        begin(w, &part[p]);
        w->step->part(w->step->of, p, touch, w);
    }
}

/* Of the second of two steps: the first leaves the memory as every step does. */
static ab_status walk_steps(walk *w, ab_traffic *traffic, size_t rows) {
    AB_TRY(lay_out(w));
    w->granule = ab_reuse_granule(w->bytes);
    walk_step(w, traffic);
    AB_TRY(ab_reuse_create(w->bytes, 2 * w->touched, &w->reuse));
    walk_step(w, traffic);
    memset(traffic, 0, rows * sizeof *traffic);
    walk_step(w, traffic);
    return AB_OK;
}

ab_status ab_step_traffic(const ab_step_operands *step, ab_traffic **traffic) {
    const size_t rows = (size_t)step->plan->nodes * AB_TIMED_PASSES + AB_TIMED_PARTS;
    walk w = {.step = step};
    *traffic = calloc(rows, sizeof **traffic);
    if (!*traffic) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    const ab_status status = walk_steps(&w, *traffic, rows);
    ab_reuse_destroy(w.reuse);
    free(w.first);
    return status;
}
