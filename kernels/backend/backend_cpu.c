/* The CPU's table: the functions of this room, called directly. */
#include "kernels/backend/backend_layout.h"

#include "kernels/backend/update_cpu.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"

#include <string.h>

enum { UNSCALE_BLOCK = 1 << 14 };

static const ab_op *same_op(const ab_op *op) { return op; }

static ab_status cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_cast(exec, dst, src);
    return AB_OK;
}

static ab_status accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_accumulate(exec, dst, src);
    return AB_OK;
}

/* ---- unscaling ------------------------------------------------------------------------------- */

typedef struct unscale_job {
    const ab_unscale_item *item;
    float inverse;
    ab_observer *observer; /* may be NULL */
    _Atomic int found;     /* a value was inf or NaN */
} unscale_job;

static void add_block(const ab_tensor *to, int64_t first, int64_t n, float *values) {
    float held[UNSCALE_BLOCK];
    ab_widen(held, ab_element(to, first), to->format, n);
    for (int64_t i = 0; i < n; i++) values[i] += held[i];
}

static void unscale_block(void *argument, int64_t block, int thread) {
    unscale_job *job = argument;
    ab_tensor *to = job->item->to;
    const ab_tensor *from = job->item->from;
    float values[UNSCALE_BLOCK];
    int found = 0;
    int64_t first = block * UNSCALE_BLOCK, n = ab_min64(UNSCALE_BLOCK, ab_tensor_count(from) - first);
    ab_widen(values, ab_element(from, first), from->format, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
        values[i] *= job->inverse;
    }
    if (job->item->adds) add_block(to, first, n, values);
    if (job->observer && job->item->id >= 0)
        job->observer->see(job->observer, job->item->id, thread, values, n);
    ab_narrow(ab_element(to, first), to->format, values, n);
    if (found) job->found = 1;
}

static ab_status unscale(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found) {
    for (int i = 0; i < items; i++) {
        unscale_job job = {.item = &item[i], .inverse = inverse, .observer = exec->observer};
        ab_parallel_for(ab_div_up(ab_tensor_count(item[i].from), UNSCALE_BLOCK), unscale_block, &job);
        if (job.found) *found = true;
    }
    return AB_OK;
}

const ab_backend ab_backend_cpu = {.abi = AB_DEVICE_ABI,
                                   .layout = ab_backend_layout,
                                   .kind = "cpu",
                                   .host_memory = true,
                                   .op = same_op,
                                   .cast = cast,
                                   .accumulate = accumulate,
                                   .unscale = unscale,
                                   .update = ab_cpu_update};
