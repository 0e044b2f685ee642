/* Ids of the tensors that a probed step shows, by requested roles. */
#include "bench/train/observe/observation.h"

#include "bench/train/memory/memory.h"
#include "kernels/census/census.h"
#include "kernels/core/parallel.h"
#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <stdio.h>
#include <stdlib.h>

static const ab_watch gradients_only = {.roles = AB_SEES_GRADIENTS};

static bool wanted(const ab_observation *o, ab_probe_role role) { return o->watch.roles >> role & 1u; }

static bool is_fp32(const ab_observation *o, int tensor) {
    return o->memory->plan->tensor[tensor].format == &ab_format_fp32;
}

/* Returns the next id for the described tensor. */
static int number(ab_observation *o, const char *name, int net_op, ab_probe_role role, bool cast) {
    ab_observed *about = &o->observed[o->count];
    ab_text_exact(about->name, sizeof about->name, "%s", name);
    about->layer = o->memory->plan->net->op[net_op].name;
    about->role = role;
    about->cast = cast;
    return o->count++;
}

/* ---- tensors of the plan --------------------------------------------------------------------- */

/* Net op whose value a tensor holds (itself or a cast of it), or AB_NONE for the network's input. */
static int producer(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++) {
        if (plan->node[n].out != tensor) continue;
        return plan->node[n].kind == AB_NODE_OP ? plan->node[n].net_op : producer(plan, plan->node[n].in[0]);
    }
    return AB_NONE;
}

static bool is_cast_output(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].out == tensor) return plan->node[n].kind == AB_NODE_CAST;
    return false;
}

/* The gradient of a half copy of a weight has the same name as at the other levels; an op's contribution to a
 * shared weight's gradient is named after the op. */
static void number_weight_gradients(ab_observation *o) {
    const ab_plan *plan = o->memory->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        char own[AB_PLAN_NAME], name[AB_PLAN_NAME + 8];
        if (param->used_grad == AB_NONE) continue;
        ab_text_exact(name, sizeof name, "%s.grad", ab_params_name(plan, param, own));
        o->memory->tensor[param->used_grad].id =
            number(o, name, param->net_op, AB_ROLE_WEIGHT_GRADIENT, !is_fp32(o, param->used_grad));
    }
}

/* Every gradient is shown where it is first written. The fp32 gradient of a cast value is omitted: the cast
 * shows the same values when it rounds them. Partial sums of a gradient share its id. */
static void number_activation_gradient(ab_observation *o, const ab_plan_node *node, int i) {
    const ab_plan *plan = o->memory->plan;
    int grad = node->in_grad[i];
    if (grad == AB_NONE) return;
    if (node->in_sum[i] != AB_NONE && !node->starts_grad_sum[i])
        o->memory->tensor[grad].id = o->memory->tensor[node->in_sum[i]].id;
    else if (!(is_fp32(o, grad) && is_cast_output(plan, node->in[i])))
        o->memory->tensor[grad].id = number(o, plan->tensor[grad].name, producer(plan, node->in[i]),
                                            AB_ROLE_ACTIVATION_GRADIENT, !is_fp32(o, grad));
}

static bool is_cast_to_half(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].kind == AB_NODE_CAST && plan->node[n].in[0] == tensor &&
            plan->tensor[plan->node[n].out].format != &ab_format_fp32)
            return true;
    return false;
}

/* An output is shown where it is rounded: in its op or in the following cast; fp32 that stays fp32 in its
 * op. */
static void number_activation(ab_observation *o, const ab_plan_node *node) {
    const ab_plan *plan = o->memory->plan;
    int op = producer(plan, node->out);
    char name[AB_PLAN_NAME];
    if (op == AB_NONE || plan->net->op[op].op->is_loss) return;
    bool fp32 = is_fp32(o, node->out), cast_node = node->kind == AB_NODE_CAST;
    if (cast_node && (fp32 || !is_fp32(o, node->in[0]))) return;
    if (!cast_node && fp32 && is_cast_to_half(plan, node->out)) return;
    ab_text_exact(name, sizeof name, "%s.out", plan->net->op[op].name);
    o->memory->tensor[node->out].id = number(o, name, op, AB_ROLE_ACTIVATION, !fp32);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int number_param(ab_observation *o, int p, ab_probe_role role, const char *suffix, bool cast) {
    const ab_plan_param *param = &o->memory->plan->param[p];
    char name[AB_PLAN_NAME];
    if (!wanted(o, role) || param->grad == AB_NONE) return -1;
    ab_text_exact(name, sizeof name, "%s%s%s", o->memory->plan->tensor[param->stored].name,
                  suffix[0] ? "." : "", suffix);
    return number(o, name, param->net_op, role, cast);
}

static void number_params(ab_observation *o) {
    const ab_plan *plan = o->memory->plan;
    const ab_optimizer *optimizer = o->optimizer;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        ab_param_ids *ids = &o->ids[p];
        int unscaled = param->master_grad != AB_NONE ? param->master_grad : param->grad;
        ids->unscaled = number_param(o, p, AB_ROLE_UNSCALED_GRADIENT, "grad",
                                     unscaled != AB_NONE && !is_fp32(o, unscaled));
        ids->weight = number_param(o, p, AB_ROLE_WEIGHT, "", !is_fp32(o, param->used));
        for (int i = 0; i < AB_OPTIMIZER_STATES; i++)
            ids->state[i] = i < optimizer->states
                                ? number_param(o, p, AB_ROLE_OPTIMIZER_STATE, optimizer->state[i],
                                               param->grad != AB_NONE && !is_fp32(o, param->state[i]))
                                : -1;
    }
}

/* ---- interface ------------------------------------------------------------------------------- */

void ab_observation_watch(ab_observation *o, const ab_watch *watch) {
    const ab_plan *plan = o->memory->plan;
    o->watch = watch ? *watch : gradients_only;
    o->count = 0;
    for (int i = 0; i < plan->tensors; i++) o->memory->tensor[i].id = -1;
    if (wanted(o, AB_ROLE_WEIGHT_GRADIENT)) number_weight_gradients(o);
    for (int n = plan->nodes - 1; n >= 0 && wanted(o, AB_ROLE_ACTIVATION_GRADIENT); n--)
        for (int i = 0; i < plan->node[n].inputs; i++) number_activation_gradient(o, &plan->node[n], i);
    for (int n = 0; n < plan->nodes && wanted(o, AB_ROLE_ACTIVATION); n++)
        number_activation(o, &plan->node[n]);
    number_params(o);
}

ab_status ab_observation_init(ab_observation *o, const ab_cell_memory *memory,
                              const ab_optimizer *optimizer) {
    const size_t tensors = (size_t)memory->plan->tensors, params = (size_t)memory->plan->params;
    o->memory = memory;
    o->optimizer = optimizer;
    o->observed = calloc(tensors + params * (2 + AB_OPTIMIZER_STATES), sizeof *o->observed);
    o->ids = calloc(params + 1, sizeof *o->ids);
    o->op_mirror = calloc((size_t)memory->plan->nodes, sizeof *o->op_mirror);
    if (!o->observed || !o->ids || !o->op_mirror) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    ab_observation_watch(o, NULL);
    return AB_OK;
}

void ab_observation_fini(ab_observation *o) {
    for (int n = 0; o->op_mirror && n < o->memory->plan->nodes; n++) ab_host_mirror_destroy(o->op_mirror[n]);
    free(o->op_mirror);
    free(o->observed);
    free(o->ids);
    *o = (ab_observation){.observed = NULL};
}

/* Shows tensors in blocks, on all threads, widened to fp32. */

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

/* An op that has run, whose tensors may be copied later. */
typedef struct op_run {
    ab_op_run run; /* first */
    ab_observation *observation;
    const ab_op_io *io; /* as it ran */
    int node;
    ab_status status; /* of the copy */
} op_run;

static const ab_op_io *copy_of(void *context) {
    op_run *r = context;
    const ab_op_io *io = r->io;
    r->status = readable(r->observation, r->node, r->run.backward, &io);
    return r->status == AB_OK ? io : NULL;
}

/* Passes the op to the watch; its tensors stay where they are if the watch reads them anywhere. */
static ab_status show_to(ab_observation *o, const ab_watch *watch, op_run *r) {
    if (watch->anywhere && !o->memory->backend->host_memory)
        r->run.copy = copy_of;
    else
        AB_TRY(readable(o, r->node, r->run.backward, &r->run.io));
    watch->ran(watch->context, &r->run);
    return r->status;
}

ab_status ab_observe_op(ab_observation *o, int node, const ab_op_io *io, const ab_exec *exec, bool backward) {
    const bool watched = ab_observation_is_observed(o) && o->watch.ran;
    const bool followed = o->follower && !o->is_replay;
    if (!watched && !followed) return AB_OK;
    const ab_plan *plan = o->memory->plan;
    const ab_net_op *op = ab_plan_node_op(plan, &plan->node[node]);
    op_run r = {.run = {.number = plan->node[node].net_op,
                        .name = op->name,
                        .op = op->op,
                        .io = io,
                        .backward = backward,
                        .exec = exec},
                .observation = o,
                .io = io,
                .node = node};
    r.run.context = &r;
    if (watched) AB_TRY(show_to(o, &o->watch, &r));
    if (followed) AB_TRY(show_to(o, o->follower, &r));
    return AB_OK;
}

void ab_observe_cast_or_sum(const ab_observation *o, ab_move_kind kind, int net_op, bool backward, int to,
                            int from) {
    const ab_cell_memory *memory = o->memory;
    if (!ab_observation_is_observed(o) || !o->watch.moved) return;
    if (!memory->backend->host_memory && !o->watch.anywhere) return;
    const char *name = net_op == AB_NONE ? memory->plan->tensor[to].name : memory->plan->net->op[net_op].name;
    const ab_move move = {
        kind, net_op == AB_NONE ? -1 : net_op, name, backward, &memory->tensor[to], &memory->tensor[from]};
    o->watch.moved(o->watch.context, &move);
}
