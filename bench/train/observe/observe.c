/* Shows tensors in blocks, on all threads, widened to fp32. */
#include "bench/train/observe/observe.h"

#include "kernels/census/census.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <stdlib.h>

enum { OBSERVE_BLOCK = 1 << 16, WIDEN_BLOCK = 1 << 12 };

/* ---- values ---------------------------------------------------------------------------------- */

typedef struct observe_job {
    ab_observer *observer;
    const ab_tensor *tensor;
    int id;
} observe_job;

/* Half values are widened in chunks. */
static void observe_half(const observe_job *job, int64_t first, int64_t end, int thread) {
    float values[WIDEN_BLOCK];
    for (int64_t n; first < end; first += n) {
        const char *data = (const char *)job->tensor->data + ab_format_bytes(job->tensor->format, first);
        n = end - first < WIDEN_BLOCK ? end - first : WIDEN_BLOCK;
        ab_widen(values, data, job->tensor->format, n);
        job->observer->see(job->observer, job->id, thread, values, n);
    }
}

static void observe_block(void *argument, int64_t block, int thread) {
    const observe_job *job = argument;
    int64_t first = block * OBSERVE_BLOCK, count = ab_tensor_count(job->tensor);
    int64_t end = count - first < OBSERVE_BLOCK ? count : first + OBSERVE_BLOCK;
    if (job->tensor->format == &ab_format_fp32)
        job->observer->see(job->observer, job->id, thread, (const float *)job->tensor->data + first,
                           end - first);
    else
        observe_half(job, first, end, thread);
}

/* Uses a census computed by the device if the observer needs nothing else. *done: whether it did. */
static ab_status observe_counted(const ab_observation *o, const ab_tensor *tensor, int id, bool *done) {
    const ab_backend *backend = o->memory->backend;
    *done = false;
    if (!backend->census || !o->observer->counts || !o->observer->counts(o->observer, id)) return AB_OK;
    ab_census *census = malloc(sizeof *census); /* 28 KiB: too large for the stack */
    if (!census) return ab_fail(AB_NO_MEMORY, "showing a tensor to probes: out of memory");
    ab_status status = backend->census(tensor, census);
    *done = status == AB_OK;
    if (*done) o->observer->count(o->observer, id, census);
    free(census);
    return status == AB_UNAVAILABLE ? AB_OK : status;
}

static ab_status observe_downloaded(const ab_observation *o, const ab_tensor *tensor, int id) {
    bool done;
    AB_TRY(observe_counted(o, tensor, id, &done));
    if (done) return AB_OK;
    int64_t count = ab_tensor_count(tensor);
    float *values = malloc((size_t)count * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "showing a tensor to probes: out of memory");
    ab_status status = ab_tensor_read(tensor, values);
    if (status == AB_OK) o->observer->see(o->observer, id, ab_parallel_thread(), values, count);
    free(values);
    return status;
}

ab_status ab_observe_tensor(const ab_observation *o, const ab_tensor *tensor, int id) {
    observe_job job = {o->observer, tensor, id};
    if (!o->observer || id < 0) return AB_OK;
    if (!o->memory->backend->host_memory) return observe_downloaded(o, tensor, id);
    ab_parallel_for((ab_tensor_count(tensor) + OBSERVE_BLOCK - 1) / OBSERVE_BLOCK, observe_block, &job);
    return AB_OK;
}

ab_status ab_observe_fp32(const ab_observation *o, int number) {
    const ab_tensor *tensor = ab_cell_memory_tensor(o->memory, number);
    return tensor && tensor->format == &ab_format_fp32 ? ab_observe_tensor(o, tensor, tensor->id) : AB_OK;
}

/* ---- ops and moves --------------------------------------------------------------------------- */

/* The op's tensors in host-readable memory. */
static ab_status readable(ab_observation *o, int node, bool backward, const ab_op_io **io) {
    ab_host_mirror **mirror = &o->op_mirror[node];
    if (o->memory->backend->host_memory) return AB_OK;
    if (!*mirror) AB_TRY(ab_host_mirror_create(*io, mirror));
    unsigned sets = AB_MIRROR_IN | AB_MIRROR_PARAM | AB_MIRROR_OUT | AB_MIRROR_SAVED;
    if (backward) sets |= AB_MIRROR_DOUT | AB_MIRROR_DIN | AB_MIRROR_DPARAM;
    AB_TRY(ab_host_mirror_pull(*mirror, *io, sets, ~0u));
    *io = ab_host_mirror_io(*mirror, *io);
    return AB_OK;
}

ab_status ab_observe_ran(ab_observation *o, int node, const ab_op_io *io, const ab_exec *exec,
                         bool backward) {
    const bool watched = ab_observation_is_observed(o) && o->watch.ran;
    const bool followed = o->follower && !o->is_replay;
    if (!watched && !followed) return AB_OK;
    const ab_plan *plan = o->memory->plan;
    const ab_net_op *op = ab_plan_node_op(plan, &plan->node[node]);
    AB_TRY(readable(o, node, backward, &io));
    const ab_op_run run = {plan->node[node].net_op, op->name, op->op, io, backward, exec};
    if (watched) o->watch.ran(o->watch.context, &run);
    if (followed) o->follower->ran(o->follower->context, &run);
    return AB_OK;
}

void ab_observe_moved(const ab_observation *o, ab_move_kind kind, int net_op, bool backward, int to,
                      int from) {
    const ab_cell_memory *memory = o->memory;
    if (!ab_observation_is_observed(o) || !o->watch.moved || !memory->backend->host_memory) return;
    const char *name = net_op == AB_NONE ? memory->plan->tensor[to].name : memory->plan->net->op[net_op].name;
    const ab_move move = {
        kind, net_op == AB_NONE ? -1 : net_op, name, backward, &memory->tensor[to], &memory->tensor[from]};
    o->watch.moved(o->watch.context, &move);
}
