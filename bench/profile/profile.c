/* Steps of a cell, timed; rows from medians. */
#define _GNU_SOURCE
#include "bench/profile/profile.h"

#include "bench/timer/timer.h"
#include "kernels/format/halves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, LEAST_STEPS = 10 };

/* ---- timing ---------------------------------------------------------------------------------- */

ab_status ab_profiler_open(ab_cell *cell, int64_t expected, ab_profiler *p) {
    const int nodes = ab_cell_plan(cell)->nodes;
    const int64_t room = expected < AB_PROFILER_MOST ? expected : AB_PROFILER_MOST;
    *p = (ab_profiler){.cell = cell, .nodes = nodes, .room = room > 0 ? room : 1};
    p->rows = nodes * AB_TIMED_PASSES + AB_TIMED_PARTS + 1;
    p->stride = (expected + p->room - 1) / p->room;
    p->now = calloc((size_t)p->rows, sizeof *p->now);
    p->value = calloc((size_t)p->rows * (size_t)p->room, sizeof *p->value);
    p->left = calloc((size_t)ab_cell_plan(cell)->params + 1, sizeof *p->left);
    if (!p->now || !p->value || !p->left) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    p->times = (ab_step_times){.now = ab_monotonic_ns, .part = p->now + nodes * AB_TIMED_PASSES};
    for (int pass = 0; pass < AB_TIMED_PASSES; pass++) p->times.node[pass] = p->now + pass * nodes;
    return AB_OK;
}

void ab_profiler_close(ab_profiler *p) {
    free(p->now);
    free(p->value);
    free(p->left);
    *p = (ab_profiler){.cell = NULL};
}

static bool is_kept(const ab_profiler *p) { return p->seen % p->stride == 0 && p->steps < p->room; }

void ab_profiler_begin_step(ab_profiler *p) {
    if (!is_kept(p)) return;
    memset(p->now, 0, (size_t)p->rows * sizeof *p->now);
    ab_cell_time(p->cell, &p->times);
}

void ab_profiler_end_step(ab_profiler *p, int64_t step_ns, float loss) {
    const bool kept = is_kept(p);
    p->seen++;
    if (!kept) return;
    ab_cell_time(p->cell, NULL);
    p->now[p->rows - 1] = step_ns;
    for (int r = 0; r < p->rows; r++) p->value[r * p->room + p->steps] = (double)p->now[r];
    for (int i = 0; i < ab_cell_plan(p->cell)->params; i++) p->left[i] = ab_cell_left_half(p->cell, i);
    p->past[AB_TIMED_FORWARD] = ab_cell_passes_casts(p->cell, false);
    p->past[AB_TIMED_BACKWARD] = ab_cell_passes_casts(p->cell, true);
    p->batches_cast += !ab_cell_input_is_cast(p->cell);
    p->nonfinite += !isfinite(loss);
    p->steps++;
}

/* Until there is no more room, or after some steps no more time. */
static ab_status time_steps(double seconds, ab_profiler *p) {
    ab_step_result result;
    for (int i = 0; i < WARM_UP; i++) AB_TRY(ab_cell_step(p->cell, NULL, &result));
    const int64_t end = ab_monotonic_ns() + (int64_t)(seconds * 1e9);
    for (int64_t step = 0; step < p->room * p->stride; step++) {
        if (seconds > 0 && step >= LEAST_STEPS && ab_monotonic_ns() > end) break;
        const int64_t begun = ab_monotonic_ns();
        ab_profiler_begin_step(p);
        AB_TRY(ab_cell_step(p->cell, NULL, &result));
        ab_profiler_end_step(p, ab_monotonic_ns() - begun, result.loss);
    }
    return AB_OK;
}

static double median_of(const ab_profiler *s, int row) {
    return ab_median(s->value + row * s->room, s->steps);
}

/* ---- work ------------------------------------------------------------------------------------ */

static double bytes_of(const ab_plan *plan, int tensor) {
    if (tensor == AB_NONE) return 0;
    const ab_plan_tensor *t = &plan->tensor[tensor];
    const double n = (double)ab_shape_count(&t->shape);
    return n * (t->format ? (double)ab_format_bytes(t->format, 1) : (double)sizeof(int32_t));
}

/* Bytes of a node's operand, or of the one behind the cast beside it. */
static double operand_bytes(const ab_plan *plan, bool past, int behind, int own) {
    return bytes_of(plan, past && behind != AB_NONE ? behind : own);
}

static double forward_bytes(const ab_plan *plan, const ab_plan_node *node, bool past) {
    double bytes = operand_bytes(plan, past, node->past.out, node->out);
    for (int i = 0; i < node->inputs; i++) bytes += operand_bytes(plan, past, node->past.in[i], node->in[i]);
    for (int i = 0; i < node->saves; i++) bytes += bytes_of(plan, node->saved[i]);
    for (int i = 0; i < node->params; i++) bytes += bytes_of(plan, plan->param[node->first_param + i].used);
    return bytes;
}

/* The output's gradient and what backward reads of the forward pass, and the gradients that it writes. */
static double backward_bytes(const ab_plan *plan, const ab_plan_node *node, bool past) {
    const ab_plan_past *behind = &node->past;
    const unsigned needs = ab_plan_node_needs(plan, node);
    double bytes = operand_bytes(plan, past, behind->out_grad, node->out_grad);
    if (needs & AB_NEEDS_OUT) bytes += bytes_of(plan, node->out);
    for (int i = 0; i < node->inputs; i++) {
        if (needs >> i & 1u) bytes += operand_bytes(plan, past, behind->in[i], node->in[i]);
        bytes += operand_bytes(plan, past, behind->in_grad[i], node->in_grad[i]);
    }
    for (int i = 0; i < node->saves; i++) bytes += bytes_of(plan, node->saved[i]);
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        bytes += bytes_of(plan, param->used_grad);
        if (i == 0 && node->in_grad[0] != AB_NONE) bytes += bytes_of(plan, param->used);
    }
    return bytes;
}

/* A batch norm that trains needs sums over its whole input, backward over the gradient too, before its first
 * result. */
static double again_bytes(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op, bool backward,
                          bool past) {
    if (!op || !op->op->batch_norm || ab_net_op_frozen(op)) return 0;
    const double in = operand_bytes(plan, past, node->past.in[0], node->in[0]);
    return backward ? in + operand_bytes(plan, past, node->past.out_grad, node->out_grad) : in;
}

/* left: half gradients that the update reads, which nobody casts. */
static double sums_bytes(const ab_plan *plan, const ab_plan_node *node, const bool *left) {
    double bytes = 0;
    for (int i = 0; i < node->inputs; i++)
        if (node->in_sum[i] != AB_NONE)
            bytes += bytes_of(plan, node->in_grad[i]) +
                     bytes_of(plan, node->in_sum[i]) * (node->starts_grad_sum[i] ? 1 : 2);
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        if (param->used_grad != param->sum && !left[node->first_param + i])
            bytes += bytes_of(plan, param->used_grad) + bytes_of(plan, param->sum);
    }
    return bytes;
}

static void input_shapes(const ab_plan *plan, const ab_plan_node *node, ab_shape in[AB_MAX_INPUTS]) {
    for (int i = 0; i < node->inputs; i++) in[i] = plan->tensor[node->in[i]].shape;
}

static double forward_flops(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op) {
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->flops) return 0;
    input_shapes(plan, node, in);
    return op->op->flops(op->attrs, in, &plan->tensor[node->out].shape);
}

static double backward_flops(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op) {
    int gradients = op && ab_net_op_trains(op);
    for (int i = 0; i < node->inputs; i++) gradients += node->in_grad[i] != AB_NONE;
    return ab_plan_backward_flops(op, forward_flops(plan, node, op), gradients);
}

static double wide_flops(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op, bool backward) {
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->wide_flops) return 0;
    input_shapes(plan, node, in);
    return op->op->wide_flops(op->attrs, in, &plan->tensor[node->out].shape, backward);
}

static void count_elementary(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op,
                             bool backward, double count[AB_ELEMENTARY_COUNT]) {
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->elementary) return;
    if (op->op->by_code && ab_is_half(plan->tensor[node->in[0]].format)) return;
    input_shapes(plan, node, in);
    op->op->elementary(op->attrs, in, &plan->tensor[node->out].shape, backward, count);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct table {
    const ab_cell *cell;
    const ab_plan *plan;
    double batches; /* of a step */
    ab_profile *profile;
} table;

static void add_row(const table *t, ab_profile_row row) {
    if (row.ns <= 0) return;
    row.batches = t->batches;
    t->profile->parts_ns += row.ns;
    t->profile->row[t->profile->rows++] = row;
}

/* Whether the op's work is matrix products: autocast's half list is those. */
static bool is_product(const ab_op *op) {
    for (int i = 0; i < ab_op_count(); i++)
        if (ab_op_at(i) == op) return ab_op_class_at(i) == AB_CLASS_low;
    return false;
}

/* The implementation of a pass; backward's that of the input's gradient, where there is one. */
static const char *implementation(const table *t, int n, ab_timed_pass pass) {
    const char *text = ab_cell_describe(t->cell, n, pass == AB_TIMED_FORWARD ? "forward" : "backward_data");
    if (pass == AB_TIMED_BACKWARD && (!text || strcmp(text, "none") == 0))
        text = ab_cell_describe(t->cell, n, "backward_weights");
    return text;
}

/* Whether another op's pass does that of node n, which is in its tail or before it; sums go with the backward
 * pass. */
static bool is_fused(const table *t, int n, ab_timed_pass pass) {
    const ab_plan_node *node = n == AB_NONE ? NULL : &t->plan->node[n];
    const bool other = node && (node->head != AB_NONE || node->behind != AB_NONE);
    const char *text = other ? implementation(t, n, pass) : NULL;
    return text && strcmp(text, "fused") == 0;
}

/* The operand that the addition in a node's tail adds to the node's own result. */
static int addend_of(const ab_plan_node *node, const ab_plan_node *add) {
    return add->in[0] == node->out ? 1 : 0;
}

/* Adds what the ops of a node's tail need besides, if the node's pass does theirs: the addend and its
 * gradient, and the output of the relu, which backward masks by; results between are in registers. */
static void add_tail(const table *t, const ab_profiler *s, int n, int pass, ab_profile_row *row) {
    const ab_plan *plan = t->plan;
    const ab_plan_node *node = &plan->node[n], *all = plan->node;
    if (node->relu == AB_NONE || !is_fused(t, node->relu, (ab_timed_pass)pass)) return;
    const ab_plan_node *add = node->add == AB_NONE ? NULL : &all[node->add];
    const int members[] = {node->add, node->relu};
    for (int i = 0; i < 2; i++)
        if (members[i] != AB_NONE && pass != AB_TIMED_SUMS) {
            const ab_plan_node *member = &all[members[i]];
            const ab_net_op *op = ab_plan_node_op(plan, member);
            row->flops +=
                pass == AB_TIMED_FORWARD ? forward_flops(plan, member, op) : backward_flops(plan, member, op);
        }
    if (pass == AB_TIMED_BACKWARD) row->bytes += bytes_of(plan, all[node->relu].out);
    if (!add) return;
    if (pass == AB_TIMED_SUMS) row->bytes += sums_bytes(plan, add, s->left);
    if (pass == AB_TIMED_FORWARD) row->bytes += bytes_of(plan, add->in[addend_of(node, add)]);
    if (pass == AB_TIMED_BACKWARD) row->bytes += bytes_of(plan, add->in_grad[addend_of(node, add)]);
}

/* Whether nobody ran the cast of node n in this pass: the op beside it passes it by, or the batch was written
 * as its result. */
static bool is_passed(const table *t, const ab_profiler *s, int n, int pass) {
    const ab_plan_node *node = &t->plan->node[n];
    if (pass == AB_TIMED_BACKWARD) return node->passed_backward && s->past[pass];
    return pass == AB_TIMED_FORWARD && ((node->passed_forward && s->past[pass]) ||
                                        (n == t->plan->input_cast && 2 * s->batches_cast < s->steps));
}

/* Adds what the backward pass of the relu before a node computes, if the node's does it. */
static void add_front(const table *t, int n, int pass, ab_profile_row *row) {
    const ab_plan *plan = t->plan;
    const int front = plan->node[n].front;
    if (pass != AB_TIMED_BACKWARD || front == AB_NONE || !is_fused(t, front, AB_TIMED_BACKWARD)) return;
    const ab_plan_node *relu = &plan->node[front];
    row->flops += backward_flops(plan, relu, ab_plan_node_op(plan, relu));
}

/* What a pass of a node computes, reads and writes. */
static void add_work(const table *t, const ab_profiler *s, int n, int pass, ab_profile_row *row) {
    const ab_plan_node *node = &t->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(t->plan, node);
    if (is_fused(t, n, (ab_timed_pass)pass) || is_passed(t, s, n, pass)) return;
    if (pass == AB_TIMED_FORWARD) {
        row->flops = forward_flops(t->plan, node, op);
        row->bytes = forward_bytes(t->plan, node, s->past[pass]);
    } else if (pass == AB_TIMED_BACKWARD) {
        row->flops = backward_flops(t->plan, node, op);
        row->bytes = backward_bytes(t->plan, node, s->past[pass]);
    } else {
        row->type = "cast";
        row->bytes = sums_bytes(t->plan, node, s->left);
    }
    if (pass != AB_TIMED_SUMS) {
        row->again_bytes = again_bytes(t->plan, node, op, pass == AB_TIMED_BACKWARD, s->past[pass]);
        row->wide_flops = wide_flops(t->plan, node, op, pass == AB_TIMED_BACKWARD);
        count_elementary(t->plan, node, op, pass == AB_TIMED_BACKWARD, row->elementary);
    }
    add_tail(t, s, n, pass, row);
    add_front(t, n, pass, row);
}

static void add_node(const table *t, const ab_profiler *s, int n) {
    static const char *const names[] = {"forward", "backward", "sums"};
    const ab_plan_node *node = &t->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(t->plan, node);
    const ab_format *format = t->plan->tensor[node->out].format;
    const ab_net_op *of = op ? op : node->net_op != AB_NONE ? &t->plan->net->op[node->net_op] : NULL;
    for (int p = 0; p < AB_TIMED_PASSES; p++) {
        ab_profile_row row = {.op = of ? of->name : "input",
                              .type = op ? op->op->name : "cast",
                              .pass = names[p],
                              .kind = op && p != AB_TIMED_SUMS ? AB_PROFILE_OP : AB_PROFILE_CAST,
                              .ns = median_of(s, p * s->nodes + n)};
        add_work(t, s, n, p, &row);
        if (p == AB_TIMED_SUMS && row.bytes <= 0) continue; /* nothing to sum: two readings of the clock */
        if (row.kind == AB_PROFILE_OP) row.run = implementation(t, n, (ab_timed_pass)p);
        if (op && row.kind == AB_PROFILE_OP && is_product(op->op)) row.product = format;
        add_row(t, row);
    }
}

/* What the parts of a step read and write, where the plan says it. */
static double part_bytes(const ab_plan *plan, int part, const bool *left) {
    double bytes = 0;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (part == AB_TIMED_WEIGHT_CASTS && param->used != param->stored)
            bytes += bytes_of(plan, param->used) + bytes_of(plan, param->stored);
        if (part != AB_TIMED_UPDATE || param->grad == AB_NONE || param->owner != AB_NONE) continue;
        const int weight = param->master != AB_NONE ? param->master : param->stored;
        bytes += bytes_of(plan, left[p]                         ? param->used_grad
                                : param->master_grad != AB_NONE ? param->master_grad
                                                                : param->grad);
        bytes += 2 * bytes_of(plan, weight);
        if (param->master != AB_NONE) bytes += bytes_of(plan, param->stored);
        for (int k = 0; k < AB_MAX_STATES; k++) bytes += 2 * bytes_of(plan, param->state[k]);
    }
    return bytes;
}

static void add_part(table t, const ab_profiler *s, int part) {
    static const struct {
        const char *type;
        ab_profile_kind kind;
    } about[AB_TIMED_PARTS] = {[AB_TIMED_BATCH] = {"batch", AB_PROFILE_OTHER},
                               [AB_TIMED_WEIGHT_CASTS] = {"weight casts", AB_PROFILE_CAST},
                               [AB_TIMED_REDUCTION] = {"reduction", AB_PROFILE_OTHER},
                               [AB_TIMED_UNSCALE] = {"unscale, clip", AB_PROFILE_UPDATE},
                               [AB_TIMED_UPDATE] = {"optimizer", AB_PROFILE_UPDATE},
                               [AB_TIMED_STATISTICS] = {"data statistics", AB_PROFILE_STATISTICS},
                               [AB_TIMED_OTHER] = {"other", AB_PROFILE_OTHER}};
    const ab_profile_row row = {.op = "",
                                .type = about[part].type,
                                .pass = "step",
                                .kind = about[part].kind,
                                .ns = median_of(s, s->nodes * AB_TIMED_PASSES + part),
                                .bytes = part_bytes(t.plan, part, s->left)};
    t.batches = 1;
    add_row(&t, row);
}

static int longest_first(const void *a, const void *b) {
    const ab_profile_row *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* ---- a cell ---------------------------------------------------------------------------------- */

ab_status ab_profiler_rows(const ab_profiler *s, const ab_recipe *recipe, ab_profile *profile) {
    const ab_plan *plan = ab_cell_plan(s->cell);
    const table t = {s->cell, plan, (double)ab_cell_batches(s->cell), profile};
    profile->row = calloc((size_t)s->rows, sizeof *profile->row);
    if (!profile->row) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    for (int n = 0; n < s->nodes; n++) add_node(&t, s, n);
    for (int part = 0; part < AB_TIMED_PARTS; part++)
        if (part != AB_TIMED_REDUCTION || recipe->ranks.count > 1) add_part(t, s, part);
    profile->steps = s->steps;
    profile->nonfinite = s->nonfinite;
    profile->step_ns = median_of(s, s->rows - 1);
    qsort(profile->row, (size_t)profile->rows, sizeof *profile->row, longest_first);
    return AB_OK;
}

ab_status ab_profile_cell(const ab_cell_config *settings, const char *name, int64_t steps, double seconds,
                          ab_profile *profile) {
    ab_profiler p = {.cell = NULL};
    *profile = (ab_profile){.cell = strdup(name)};
    if (!profile->cell) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    AB_TRY(ab_cell_create(settings, &profile->kept));
    ab_status status = ab_profiler_open(profile->kept, steps, &p);
    if (status == AB_OK) status = time_steps(seconds, &p);
    if (status == AB_OK) status = ab_profiler_rows(&p, &settings->recipe, profile);
    ab_profiler_close(&p);
    return status;
}

void ab_profile_clear(ab_profile *profile) {
    free(profile->cell);
    free(profile->row);
    if (profile->kept) ab_cell_destroy(profile->kept);
    *profile = (ab_profile){.cell = NULL};
}

/* Seconds of a batch's products, each at the rate of the format that it is computed in. */
static double product_seconds(const ab_profile_row *row, const ab_machine_limits *limits) {
    if (!row->product) return 0;
    return (row->flops - row->wide_flops) / ab_machine_limits_product(limits, row->product) +
           row->wide_flops / ab_machine_limits_product(limits, &ab_format_fp32);
}

void ab_profile_compare(ab_profile *profile, const ab_machine_limits *limits) {
    for (int i = 0; i < profile->rows; i++) {
        ab_profile_row *row = &profile->row[i];
        const double memory =
            row->bytes > 0 ? row->bytes / ab_machine_limits_bandwidth(limits, row->bytes) : 0;
        const double again = row->bytes > 0 ? row->again_bytes / row->bytes : 0;
        row->twice_ns = again > 0 ? 1e9 * row->batches * memory * (1 + again) : 0;
        const double product = product_seconds(row, limits),
                     functions = ab_machine_limits_functions(limits, row->elementary),
                     compute = product + functions;
        row->limit = compute <= memory ? "memory" : functions > product ? "function" : "product";
        row->limit_ns = 1e9 * row->batches * (compute > memory ? compute : memory);
    }
}

double ab_profile_time_of(const ab_profile *profile, ab_profile_kind kind) {
    double ns = 0;
    for (int i = 0; i < profile->rows; i++)
        if (profile->row[i].kind == kind) ns += profile->row[i].ns;
    return ns;
}
