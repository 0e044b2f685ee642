/* Tails: a relu behind an op, or an addition and a relu, that the op may compute with its own (ab_tail in
 * op.h). Each is the only reader of the one before, and all results have one format, so that fused passes
 * round where separate ops do. Whether a device does so is its own decision, and steps that somebody looks at
 * run one op after the other all the same.
 *
 * relu commutes with rounding to nearest: rounding is monotonic and keeps 0, so max(round(x), 0) and
 * round(max(x, 0)) are the same number. gelu, tanh and their kin do not: gelu of a rounded number is not the
 * rounded gelu, and a library's own tanh is not ours, so only relu is in tails. */
#include "bench/amp/plan/plan.h"

static bool is_op(const ab_plan *plan, const ab_plan_node *node, const ab_op *op) {
    const ab_net_op *own = ab_plan_node_op(plan, node);
    return own && own->op == op && !node->recomputed;
}

/* The only node that reads tensor t; AB_NONE: none, several, or the step loop reads it too. */
static int only_reader(const ab_plan *plan, int t) {
    int reader = AB_NONE;
    for (int n = 0; n < plan->nodes; n++)
        for (int i = 0; i < plan->node[n].inputs; i++) {
            if (plan->node[n].in[i] != t) continue;
            if (reader != AB_NONE) return AB_NONE;
            reader = n;
        }
    return t == plan->logits ? AB_NONE : reader;
}

static void join(ab_plan *plan, int head, int add, int relu) {
    plan->node[head].add = add;
    plan->node[head].relu = relu;
    plan->node[relu].head = head;
    if (add != AB_NONE) plan->node[add].head = head;
}

/* ---- batch norms ----------------------------------------------------------------------------- */

static bool one_format(const ab_plan *plan, int a, int b) {
    return a == AB_NONE || b == AB_NONE || plan->tensor[a].format == plan->tensor[b].format;
}

/* Whether node n alone reads the output of the node before it, as input i, and writes its gradient, in the
 * formats of its own; no cast beside it is passed by. */
static bool follows(const ab_plan *plan, int n, int i) {
    const ab_plan_node *node = &plan->node[n], *before = &plan->node[n - 1];
    const ab_plan_past *past = &node->past;
    return node->in[i] == before->out && only_reader(plan, before->out) == n &&
           one_format(plan, node->out, before->out) && one_format(plan, node->out_grad, before->out_grad) &&
           node->in_grad[i] == before->out_grad && node->in_sum[i] == AB_NONE && past->out == AB_NONE &&
           past->out_grad == AB_NONE && past->in[i] == AB_NONE && past->in_grad[i] == AB_NONE;
}

/* The input of an addition of two tensors that is not input i, in the same formats; AB_NONE: there is none.
 */
static int addend_of(const ab_plan *plan, const ab_plan_node *add, int i) {
    const int other = 1 - i;
    if (add->inputs != 2 || !ab_shape_equal(&plan->tensor[add->in[0]].shape, &plan->tensor[add->in[1]].shape))
        return AB_NONE;
    const bool fits = one_format(plan, add->in[other], add->out) &&
                      one_format(plan, add->in_grad[other], add->out_grad) &&
                      add->past.in[other] == AB_NONE && add->past.in_grad[other] == AB_NONE;
    return fits ? other : AB_NONE;
}

/* The addition at node n if it adds the output of the node before it to something else. */
static bool is_addition(const ab_plan *plan, int n) {
    const ab_plan_node *add = &plan->node[n];
    if (!is_op(plan, add, &ab_op_add)) return false;
    for (int i = 0; i < 2; i++)
        if (addend_of(plan, add, i) != AB_NONE && follows(plan, n, i)) return true;
    return false;
}

/* The nodes of a tail are those after the batch norm, so that the addend is there when it runs. */
static void find_tail(ab_plan *plan, int n) {
    const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
    if (!op || !op->op->batch_norm || plan->node[n].recomputed) return;
    const int add = n + 1 < plan->nodes && is_addition(plan, n + 1) ? n + 1 : AB_NONE;
    const int relu = add == AB_NONE ? n + 1 : n + 2;
    if (relu >= plan->nodes || !is_op(plan, &plan->node[relu], &ab_op_relu) || !follows(plan, relu, 0))
        return;
    join(plan, n, add, relu);
    plan->node[n].tail_backward = plan->node[n].out_grad != AB_NONE;
}

void ab_plan_norm_tails(ab_plan *plan) {
    if (plan->scalers > 1) return; /* gradients of one pass are then read by another */
    for (int n = 0; n < plan->nodes; n++) find_tail(plan, n);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Whether tensor t may be written from position `from` on, before its lifetime begins: nothing else is in its
 * memory then. */
static bool is_free_from(const ab_plan *plan, int t, int from) {
    const ab_plan_tensor *own = &plan->tensor[t];
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *other = &plan->tensor[i];
        if (i == t || !other->transient || other->category != own->category) continue;
        if (other->shares != AB_NONE) continue; /* its root is looked at */
        const bool meet = other->first <= own->first && from <= other->last;
        if (meet && other->offset < own->offset + own->bytes && own->offset < other->offset + other->bytes)
            return false;
    }
    return own->transient;
}

void ab_plan_product_tails(ab_plan *plan) {
    for (int n = 0; n < plan->nodes; n++) {
        const int r =
            is_op(plan, &plan->node[n], &ab_op_linear) ? only_reader(plan, plan->node[n].out) : AB_NONE;
        if (r == AB_NONE || !is_op(plan, &plan->node[r], &ab_op_relu)) continue;
        if (one_format(plan, plan->node[r].out, plan->node[n].out) &&
            is_free_from(plan, plan->node[r].out, n))
            join(plan, n, AB_NONE, r);
    }
}

/* ---- poolings -------------------------------------------------------------------------------- */

/* Whether the gradient that node n writes for its input is that of the output of relu r and of nothing else,
 * no cast beside it is passed by, and that of the relu's input has its format. A batch norm does that of the
 * relu behind it anyway. */
static bool passes_to(const ab_plan *plan, int n, int r) {
    const ab_plan_node *relu = &plan->node[r], *node = &plan->node[n];
    const ab_plan_past *past = &relu->past;
    return relu->head == AB_NONE && relu->out_grad != AB_NONE && relu->in_grad[0] != AB_NONE &&
           node->in_grad[0] == relu->out_grad && node->in_sum[0] == AB_NONE && node->past.in[0] == AB_NONE &&
           node->past.in_grad[0] == AB_NONE && past->out == AB_NONE && past->out_grad == AB_NONE &&
           past->in_grad[0] == AB_NONE && one_format(plan, relu->in_grad[0], relu->out_grad);
}

/* The gradient goes to the maximum of a window and is 0 elsewhere, so that a mask by the maximum is one of
 * all values. */
int ab_plan_pool_behind(const ab_plan *plan, int r) {
    if (!is_op(plan, &plan->node[r], &ab_op_relu)) return AB_NONE;
    const int n = only_reader(plan, plan->node[r].out);
    return n != AB_NONE && is_op(plan, &plan->node[n], &ab_op_max_pool2d) && passes_to(plan, n, r) ? n
                                                                                                   : AB_NONE;
}
