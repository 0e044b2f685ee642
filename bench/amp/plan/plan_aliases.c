/* Gradients that share memory: the backward pass of an addition passes its gradient on as it is, so the
 * gradients of both operands are in the memory of that of the sum wherever nobody changes one of them while
 * another is still read. An operand that other ops read, too, has their gradients added to its own; that is a
 * change. Gradients of views share memory from the start (plan_compile.c). A relu masks the gradient that a
 * pooling alone wrote for it where it is. */
#include "bench/amp/plan/plan.h"

#include <stdlib.h>

/* When a gradient is written, added to and read, as nodes of the backward pass: the pass runs from the last
 * node to the first, so larger is earlier. An op that computes those of its tail does all of it when it runs.
 */
typedef struct history {
    int made;                      /* first written; AB_NONE: never */
    int first_change, last_change; /* added to; first_change < last_change: never */
    int last_read;
} history;

/* Tensors that share memory, as rings: each names the next. */
typedef struct aliases {
    ab_plan *plan;
    history *of; /* [plan->tensors] */
    int *next;   /* [plan->tensors] */
} aliases;

static void made(aliases *a, int tensor, int n) {
    if (tensor != AB_NONE && n > a->of[tensor].made) a->of[tensor].made = n;
}

static void read_at(aliases *a, int tensor, int n) {
    if (tensor != AB_NONE && n < a->of[tensor].last_read) a->of[tensor].last_read = n;
}

static void changed(aliases *a, int tensor, int n, int until) {
    history *h = &a->of[tensor];
    if (n > h->first_change) h->first_change = n;
    if (until < h->last_change) h->last_change = until;
}

static void note_node(aliases *a, int n) {
    const ab_plan_node *node = &a->plan->node[n];
    const bool late = node->head != AB_NONE && a->plan->node[node->head].tail_backward;
    const int until = late ? node->head : n;
    read_at(a, node->out_grad, until);
    read_at(a, node->past.out_grad, until);
    for (int i = 0; i < node->inputs; i++) {
        made(a, node->in_grad[i], n);
        made(a, node->past.in_grad[i], n);
        if (node->in_sum[i] == AB_NONE) continue;
        read_at(a, node->in_grad[i], until);
        made(a, node->in_sum[i], n);
        read_at(a, node->in_sum[i], until);
        if (!node->starts_grad_sum[i]) changed(a, node->in_sum[i], n, until);
    }
}

static void join(aliases *a, int x, int y) {
    const int next = a->next[x];
    a->next[x] = a->next[y];
    a->next[y] = next;
}

/* Whether `changing` is added to after `kept` is written and before it is read for the last time. */
static bool spoils(const history *changing, const history *kept) {
    const int first = changing->first_change < kept->made ? changing->first_change : kept->made;
    const int last = changing->last_change > kept->last_read ? changing->last_change : kept->last_read + 1;
    return last <= first;
}

static bool may_share(const aliases *a, int x, int y) {
    int i = x;
    do {
        int j = y;
        do {
            if (spoils(&a->of[i], &a->of[j]) || spoils(&a->of[j], &a->of[i])) return false;
            j = a->next[j];
        } while (j != y);
        i = a->next[i];
    } while (i != x);
    return true;
}

/* Returns whether the gradient of input i is now in the memory of that of the node's output. */
static bool share_operand(aliases *a, const ab_plan_node *node, int i) {
    ab_plan_tensor *tensor = a->plan->tensor;
    const int to = node->in_grad[i], from = node->out_grad;
    if (to == AB_NONE || !tensor[from].transient || tensor[to].shares != AB_NONE) return false;
    if (tensor[to].format != tensor[from].format || !ab_shape_equal(&tensor[to].shape, &tensor[from].shape))
        return false;
    if (!may_share(a, from, to)) return false;
    tensor[to].shares = from;
    join(a, from, to);
    return true;
}

/* Where the gradients of relu r share memory, a pooling behind it may do its backward pass. */
static void share_masked(aliases *a, int r) {
    ab_plan_node *node = a->plan->node;
    const int n = ab_plan_pool_behind(a->plan, r);
    if (n == AB_NONE || !share_operand(a, &node[r], 0)) return;
    node[n].front = r;
    node[r].behind = n;
}

static void share_operands(aliases *a, int n) {
    const ab_plan_node *node = &a->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(a->plan, node);
    if (!op || op->op != &ab_op_add || node->out_grad == AB_NONE) return;
    if (node->inputs == 2 && node->in[0] == node->in[1]) return; /* the sum of one value with itself */
    for (int i = 0; i < node->inputs; i++) (void)share_operand(a, node, i);
}

static void find_aliases(aliases *a) {
    const ab_plan *plan = a->plan;
    for (int t = 0; t < plan->tensors; t++) {
        a->of[t] = (history){AB_NONE, AB_NONE, plan->nodes, plan->nodes};
        a->next[t] = t;
    }
    for (int n = 0; n < plan->nodes; n++) note_node(a, n);
    for (int t = 0; t < plan->tensors; t++)
        if (plan->tensor[t].shares != AB_NONE) join(a, plan->tensor[t].shares, t);
    for (int n = plan->nodes - 1; n >= 0; n--) {
        share_masked(a, n);
        share_operands(a, n);
    }
}

ab_status ab_plan_alias_gradients(ab_plan *plan) {
    const ab_scaler_kind *kind = plan->policy.loss_scale.scaler.kind;
    /* gradients of one pass are then read by another; scales of layers change gradients where they are */
    if (plan->scalers > 1 || (kind && kind->sees & AB_SEES_LAYER)) return AB_OK;
    aliases a = {plan, calloc((size_t)plan->tensors, sizeof *a.of),
                 calloc((size_t)plan->tensors, sizeof *a.next)};
    const bool fine = a.of && a.next;
    if (fine) find_aliases(&a);
    free(a.of);
    free(a.next);
    return fine ? AB_OK : ab_fail(AB_NO_MEMORY, "plan: out of memory");
}
