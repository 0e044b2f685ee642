/* Steps of a cell, timed; rows from medians. */
#define _GNU_SOURCE
#include "bench/profile/profile.h"

#include "bench/profile/traffic.h"
#include "bench/timer/timer.h"

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

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct table {
    const ab_cell *cell;
    const ab_plan *plan;
    const ab_profiler *timed;
    double batches; /* of a step */
    ab_profile *profile;
    ab_traffic *traffic; /* as of ab_step_traffic; owned; NULL: not wanted */
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

/* The tail of node n whose passes the node's do: its relu, and *add, an addition or NULL; NULL: none. */
static const ab_plan_node *fused_tail(const table *t, int n, ab_timed_pass pass, const ab_plan_node **add) {
    const ab_plan_node *node = &t->plan->node[n];
    if (node->relu == AB_NONE || !is_fused(t, node->relu, pass)) return NULL;
    *add = node->add == AB_NONE ? NULL : &t->plan->node[node->add];
    return &t->plan->node[node->relu];
}

/* What the tail of node n needs besides, if the node's pass does its: the addend and its gradient, and the
 * output of the relu, which backward masks by; results between are in registers. */
static void visit_tail(const table *t, int n, ab_timed_pass pass, ab_work_operand visit, void *context) {
    const ab_plan_node *add, *node = &t->plan->node[n], *relu = fused_tail(t, n, pass, &add);
    if (!relu) return;
    if (pass == AB_TIMED_BACKWARD) visit(context, relu->out, false);
    if (!add) return;
    if (pass == AB_TIMED_SUMS) ab_work_sums(t->plan, add, t->timed->left, visit, context);
    if (pass == AB_TIMED_FORWARD) visit(context, add->in[addend_of(node, add)], false);
    if (pass == AB_TIMED_BACKWARD) visit(context, add->in_grad[addend_of(node, add)], true);
}

/* Whether nobody ran the cast of node n in this pass: the op beside it passes it by, or the batch was written
 * as its result. */
static bool is_passed(const table *t, int n, int pass) {
    const ab_profiler *s = t->timed;
    const ab_plan_node *node = &t->plan->node[n];
    if (pass == AB_TIMED_BACKWARD) return node->passed_backward && s->past[pass];
    return pass == AB_TIMED_FORWARD && ((node->passed_forward && s->past[pass]) ||
                                        (n == t->plan->input_cast && 2 * s->batches_cast < s->steps));
}

static bool is_idle(const table *t, int n, int pass) {
    return is_fused(t, n, (ab_timed_pass)pass) || is_passed(t, n, pass);
}

/* The operands of a pass of node n and of the nodes whose passes it does. of: the table, here and below, as a
 * walk over a step gives it (traffic.h). */
static void visit_pass(const void *of, int n, int pass, ab_work_operand visit, void *context) {
    const table *t = of;
    const ab_plan_node *node = &t->plan->node[n];
    const bool past = pass != AB_TIMED_SUMS && t->timed->past[pass];
    if (is_idle(t, n, pass)) return;
    if (pass == AB_TIMED_FORWARD) ab_work_forward(t->plan, node, past, visit, context);
    if (pass == AB_TIMED_BACKWARD) ab_work_backward(t->plan, node, past, visit, context);
    if (pass == AB_TIMED_SUMS) ab_work_sums(t->plan, node, t->timed->left, visit, context);
    visit_tail(t, n, (ab_timed_pass)pass, visit, context);
}

static void visit_part(const void *of, int part, ab_work_operand visit, void *context) {
    const table *t = of;
    if (part == AB_TIMED_WEIGHT_CASTS) ab_work_weight_casts(t->plan, visit, context);
    if (part == AB_TIMED_UPDATE) ab_work_update(t->plan, t->timed->left, visit, context);
}

/* The operations of a pass of node n, and of the tail and the front that it computes, too. */
static void add_operations(const table *t, int n, bool backward, ab_profile_row *row) {
    const ab_plan *plan = t->plan;
    const ab_plan_node *node = &plan->node[n], *add,
                       *relu = fused_tail(t, n, backward ? AB_TIMED_BACKWARD : AB_TIMED_FORWARD, &add);
    row->flops = ab_work_flops(plan, node, backward);
    row->wide_flops = ab_work_wide_flops(plan, node, backward);
    row->lookups = ab_work_elementary(plan, node, backward, row->elementary);
    row->again_bytes = ab_work_again_bytes(plan, node, backward,
                                           t->timed->past[backward ? AB_TIMED_BACKWARD : AB_TIMED_FORWARD]);
    if (relu) row->flops += ab_work_flops(plan, relu, backward);
    if (relu && add) row->flops += ab_work_flops(plan, add, backward);
    if (backward && node->front != AB_NONE && is_fused(t, node->front, AB_TIMED_BACKWARD))
        row->flops += ab_work_flops(plan, &plan->node[node->front], true);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct count {
    const ab_plan *plan;
    double bytes;
} count;

static void add_bytes(void *context, int tensor, bool written) {
    count *c = context;
    (void)written;
    c->bytes += (double)ab_work_bytes(c->plan, tensor);
}

static ab_status measure_traffic(table *t) {
    const ab_step_operands step = {.plan = t->plan, .node = visit_pass, .part = visit_part, .of = t};
    return ab_step_traffic(&step, &t->traffic);
}

/* ---- a cell's rows --------------------------------------------------------------------------- */

static void add_node(const table *t, int n) {
    const ab_profiler *s = t->timed;
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
        count c = {.plan = t->plan};
        visit_pass(t, n, p, add_bytes, &c);
        row.bytes = c.bytes;
        if (t->traffic) row.traffic = t->traffic[n * AB_TIMED_PASSES + p];
        if (p == AB_TIMED_SUMS) row.type = "cast";
        if (p != AB_TIMED_SUMS && !is_idle(t, n, p)) add_operations(t, n, p == AB_TIMED_BACKWARD, &row);
        if (p == AB_TIMED_SUMS && row.bytes <= 0) continue; /* nothing to sum: two readings of the clock */
        if (row.kind == AB_PROFILE_OP) row.run = implementation(t, n, (ab_timed_pass)p);
        if (op && row.kind == AB_PROFILE_OP && is_product(op->op)) row.product = format;
        add_row(t, row);
    }
}

static void add_part(table t, int part) {
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
    count c = {.plan = t.plan};
    visit_part(&t, part, add_bytes, &c);
    ab_profile_row row = {.op = "",
                          .type = about[part].type,
                          .pass = "step",
                          .kind = about[part].kind,
                          .ns = median_of(t.timed, t.plan->nodes * AB_TIMED_PASSES + part),
                          .bytes = c.bytes};
    if (t.traffic) row.traffic = t.traffic[t.plan->nodes * AB_TIMED_PASSES + part];
    t.batches = 1;
    add_row(&t, row);
}

static int longest_first(const void *a, const void *b) {
    const ab_profile_row *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

/* ---- a cell ---------------------------------------------------------------------------------- */

ab_status ab_profiler_rows(const ab_profiler *s, const ab_recipe *recipe, bool compared,
                           ab_profile *profile) {
    const ab_plan *plan = ab_cell_plan(s->cell);
    table t = {s->cell, plan, s, (double)ab_cell_batches(s->cell), profile, NULL};
    profile->row = calloc((size_t)s->rows, sizeof *profile->row);
    if (!profile->row) return ab_fail(AB_NO_MEMORY, "profile: out of memory");
    const ab_status status = compared ? measure_traffic(&t) : AB_OK;
    for (int n = 0; n < s->nodes && status == AB_OK; n++) add_node(&t, n);
    for (int part = 0; part < AB_TIMED_PARTS && status == AB_OK; part++)
        if (part != AB_TIMED_REDUCTION || recipe->ranks.count > 1) add_part(t, part);
    free(t.traffic);
    if (status != AB_OK) return status;
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
    if (status == AB_OK) status = ab_profiler_rows(&p, &settings->recipe, true, profile);
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

/* Of a batch's second readings: as far back as all that the pass reads again. */
static double again_seconds(const ab_profile_row *row, const ab_machine_limits *limits) {
    ab_traffic again = {.read = {0}};
    if (row->again_bytes <= 0) return 0;
    again.read[ab_machine_limits_holding(row->again_bytes)] = row->again_bytes;
    return ab_machine_limits_memory(limits, &again);
}

void ab_profile_compare(ab_profile *profile, const ab_machine_limits *limits) {
    for (int i = 0; i < profile->rows; i++) {
        ab_profile_row *row = &profile->row[i];
        const double memory = ab_machine_limits_memory(limits, &row->traffic),
                     again = again_seconds(row, limits), product = product_seconds(row, limits),
                     lookups = row->lookups > 0 ? row->lookups / limits->lookups : 0,
                     functions = ab_machine_limits_functions(limits, row->elementary),
                     compute = product + functions + lookups;
        row->twice_ns = again > 0 ? 1e9 * row->batches * (memory + again) : 0;
        row->limit = compute <= memory     ? "memory"
                     : lookups > functions ? "look-up"
                     : functions > product ? "function"
                                           : "product";
        row->limit_ns = 1e9 * row->batches * (compute > memory ? compute : memory);
    }
}

double ab_profile_time_of(const ab_profile *profile, ab_profile_kind kind) {
    double ns = 0;
    for (int i = 0; i < profile->rows; i++)
        if (profile->row[i].kind == kind) ns += profile->row[i].ns;
    return ns;
}
