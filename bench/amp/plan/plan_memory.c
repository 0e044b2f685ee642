/* Lifetimes of a plan's transient tensors and their offsets in the pools. Tensors of a category share memory
 * only if their lifetimes do not overlap; first fit, largest tensor first. */
#include "bench/amp/plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* A recomputed value is dead between its last use before recomputation and the recomputation. */
static void live_at(ab_plan *plan, int tensor, int position) {
    if (tensor == AB_NONE) return;
    while (plan->tensor[tensor].shares != AB_NONE) tensor = plan->tensor[tensor].shares;
    ab_plan_tensor *t = &plan->tensor[tensor];
    if (t->recompute_first != AB_NONE && position >= t->recompute_first) {
        if (position > t->recompute_last) t->recompute_last = position;
        return;
    }
    if (t->first < 0) t->first = t->last = position;
    if (position < t->first) t->first = position;
    if (position > t->last) t->last = position;
}

static void forward_lifetimes(ab_plan *plan, const ab_plan_node *node, int position) {
    for (int i = 0; i < node->inputs; i++) live_at(plan, node->in[i], position);
    for (int i = 0; i < node->saves; i++) live_at(plan, node->saved[i], position);
    live_at(plan, node->out, position);
}

static void backward_lifetimes(ab_plan *plan, const ab_plan_node *node, int position) {
    const unsigned needs = ab_plan_node_needs(plan, node);
    if (node->out_grad == AB_NONE) return; /* no trained parameters before this node */
    for (int i = 0; i < node->inputs; i++) {
        if (needs & (1u << i)) live_at(plan, node->in[i], position);
        live_at(plan, node->in_grad[i], position);
        live_at(plan, node->in_sum[i], position);
    }
    if (needs & AB_NEEDS_OUT) live_at(plan, node->out, position);
    for (int i = 0; i < node->saves; i++) live_at(plan, node->saved[i], position);
    live_at(plan, node->out_grad, position);
    for (int i = 0; i < node->params; i++)
        live_at(plan, plan->param[node->first_param + i].used_grad, position);
}

static void start_recomputed(ab_plan *plan, int tensor, int position) {
    if (plan->tensor[tensor].shares != AB_NONE) return; /* lifetime is that of the shared tensor */
    plan->tensor[tensor].recompute_first = plan->tensor[tensor].recompute_last = position;
}

/* With several backward passes, saved values live until the last of them (torch: retain_graph=True). */
static void keep_for_every_pass(ab_plan *plan) {
    for (int i = 0; i < plan->tensors; i++) {
        ab_plan_tensor *t = &plan->tensor[i];
        if (t->first >= 0 && t->first < plan->nodes && t->last >= plan->nodes) t->last = plan->positions - 1;
    }
}

static void lifetimes(ab_plan *plan) {
    for (int i = 0; i < plan->tensors; i++) {
        plan->tensor[i].first = plan->tensor[i].last = -1;
        plan->tensor[i].recompute_first = plan->tensor[i].recompute_last = AB_NONE;
    }
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        if (!node->recomputed) continue;
        start_recomputed(plan, node->out, node->recompute_at);
        for (int i = 0; i < node->saves; i++) start_recomputed(plan, node->saved[i], node->recompute_at);
    }
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        forward_lifetimes(plan, node, n);
        if (node->recomputed) forward_lifetimes(plan, node, node->recompute_at);
        backward_lifetimes(plan, node, node->backward_at);
    }
    /* the step loop reads these between the passes */
    live_at(plan, plan->logits, plan->nodes);
    for (int i = 0; i < plan->losses; i++) live_at(plan, plan->loss[i], plan->nodes);
    if (plan->scalers > 1) keep_for_every_pass(plan);
}

static int compare_places(const void *left, const void *right) {
    const ab_plan_tensor *a = *(ab_plan_tensor *const *)left, *b = *(ab_plan_tensor *const *)right;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a < b ? -1 : a > b; /* ties: order of creation */
}

typedef struct interval {
    int first, last;
} interval;

/* A tensor's place and lifetime; the second interval is empty unless it is recomputed. */
typedef struct place {
    int64_t offset, end;
    interval live, again;
} place;

static interval lifetime(int first, int last) {
    const interval never = {0, -1};
    return first == AB_NONE ? never : (interval){first, last};
}

static place place_of(const ab_plan_tensor *t) {
    return (place){.live = lifetime(t->first, t->last),
                   .again = lifetime(t->recompute_first, t->recompute_last)};
}

static bool meet(interval a, interval b) { return a.first <= b.last && b.first <= a.last; }

static bool overlap_in_time(const place *a, const place *b) {
    return meet(a->live, b->live) || meet(a->live, b->again) || meet(a->again, b->live) ||
           meet(a->again, b->again);
}

/* Lowest offset at which `tensor` overlaps no placed tensor with an overlapping lifetime. `placed` is in the
 * order of offsets: what starts behind the gap found so far cannot narrow it. */
static int64_t first_fit(const place *placed, int count, const place *tensor, int64_t bytes) {
    int64_t offset = 0;
    for (int i = 0; i < count && placed[i].offset < offset + bytes; i++)
        if (placed[i].end > offset && overlap_in_time(tensor, &placed[i])) offset = placed[i].end;
    return offset;
}

/* Inserts `tensor` in the order of offsets. */
static void insert(place *placed, int count, const place *tensor) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (placed[middle].offset <= tensor->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(count - low) * sizeof *placed);
    placed[low] = *tensor;
}

/* Copies offsets and lifetimes to the tensors that share memory. */
static void follow_shared(ab_plan *plan) {
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *root = &plan->tensor[i];
        if (root->shares == AB_NONE) continue;
        while (root->shares != AB_NONE) root = &plan->tensor[root->shares];
        ab_plan_tensor *t = &plan->tensor[i];
        t->offset = root->offset;
        t->first = root->first;
        t->last = root->last;
        t->recompute_first = root->recompute_first;
        t->recompute_last = root->recompute_last;
    }
}

/* Places the transient tensors of one category; `list` and `placed` have room for all tensors. */
static void place_category(ab_plan *plan, ab_mem_category category, ab_plan_tensor **list, place *placed) {
    int count = 0;
    for (int i = 0; i < plan->tensors; i++)
        if (plan->tensor[i].transient && plan->tensor[i].category == category &&
            plan->tensor[i].shares == AB_NONE)
            list[count++] = &plan->tensor[i];
    qsort(list, (size_t)count, sizeof *list, compare_places);
    for (int i = 0; i < count; i++) {
        place tensor = place_of(list[i]);
        list[i]->offset = tensor.offset = first_fit(placed, i, &tensor, list[i]->bytes);
        tensor.end = tensor.offset + list[i]->bytes;
        insert(placed, i, &tensor);
        if (tensor.end > plan->pool_bytes[category]) plan->pool_bytes[category] = tensor.end;
    }
    plan->bytes[category] += plan->pool_bytes[category];
}

ab_status ab_plan_place(ab_plan *plan) {
    lifetimes(plan);
    for (int i = 0; i < plan->tensors; i++)
        if (!plan->tensor[i].transient) plan->bytes[plan->tensor[i].category] += plan->tensor[i].bytes;
    ab_plan_tensor **list = malloc((size_t)plan->tensors * sizeof *list);
    place *placed = malloc((size_t)plan->tensors * sizeof *placed);
    const bool room = list && placed;
    for (int category = 0; room && category < AB_MEM_CATEGORY_COUNT; category++)
        place_category(plan, (ab_mem_category)category, list, placed);
    free(list);
    free(placed);
    if (!room) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    follow_shared(plan);
    return AB_OK;
}
