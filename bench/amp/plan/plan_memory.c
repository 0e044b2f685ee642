/* Lifetimes of a plan's transient tensors and their offsets in the pools. Tensors of a category share memory
 * only if their lifetimes do not overlap; first fit, largest tensor first. */
#include "bench/amp/plan/plan.h"

#include <limits.h>
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
    for (int i = 0; i < node->inputs; i++) live_at(plan, node->past.in[i], position);
    live_at(plan, node->out, position);
    live_at(plan, node->past.out, position);
}

static void backward_lifetimes(ab_plan *plan, const ab_plan_node *node, int position) {
    const unsigned needs = ab_plan_node_needs(plan, node);
    if (node->out_grad == AB_NONE) return; /* no trained parameters before this node */
    for (int i = 0; i < node->inputs; i++) {
        if (needs & (1u << i)) live_at(plan, node->in[i], position);
        if (needs & (1u << i)) live_at(plan, node->past.in[i], position);
        live_at(plan, node->in_grad[i], position);
        live_at(plan, node->in_sum[i], position);
        live_at(plan, node->past.in_grad[i], position);
    }
    if (needs & AB_NEEDS_OUT) live_at(plan, node->out, position);
    for (int i = 0; i < node->saves; i++) live_at(plan, node->saved[i], position);
    live_at(plan, node->out_grad, position);
    live_at(plan, node->past.out_grad, position);
    for (int i = 0; i < node->params; i++)
        live_at(plan, plan->param[node->first_param + i].used_grad, position);
}

/* What an op with a tail reads and writes for it. */
static void tail_lifetimes(ab_plan *plan, const ab_plan_node *node, int position) {
    if (node->relu == AB_NONE) return;
    const ab_plan_node *relu = &plan->node[node->relu];
    live_at(plan, relu->out, position);
    if (!node->tail_backward) return;
    live_at(plan, relu->out, node->backward_at);
    live_at(plan, relu->out_grad, node->backward_at);
    for (int i = 0; node->add != AB_NONE && i < 2; i++) {
        live_at(plan, plan->node[node->add].in_grad[i], node->backward_at);
        live_at(plan, plan->node[node->add].in_sum[i], node->backward_at);
    }
}

static void start_recomputed(ab_plan *plan, int tensor, int position) {
    if (plan->tensor[tensor].shares != AB_NONE) return; /* lifetime is that of the shared tensor */
    plan->tensor[tensor].recompute_first = plan->tensor[tensor].recompute_last = position;
}

/* The second lives of values that are dead between the passes. */
static void start_again(ab_plan *plan, const ab_plan_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (ab_plan_casts_again(plan, node, i)) start_recomputed(plan, node->in[i], node->backward_at);
    if (!node->recomputed) return;
    start_recomputed(plan, node->out, node->recompute_at);
    for (int i = 0; i < node->saves; i++) start_recomputed(plan, node->saved[i], node->recompute_at);
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
    for (int n = 0; n < plan->nodes; n++) start_again(plan, &plan->node[n]);
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        forward_lifetimes(plan, node, n);
        if (node->recomputed) forward_lifetimes(plan, node, node->recompute_at);
        backward_lifetimes(plan, node, node->backward_at);
        tail_lifetimes(plan, node, n);
    }
    if (plan->input_cast != AB_NONE) live_at(plan, plan->node[plan->input_cast].out, 0);
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

/* A tensor's lifetime: one interval, or two if it is recomputed; empty ones end before they begin. */
typedef struct life {
    interval live, again;
} life;

static const interval never = {0, -1};

static bool meet(interval a, interval b) { return a.first <= b.last && b.first <= a.last; }

static interval between(int first, int last) { return first == AB_NONE ? never : (interval){first, last}; }

/* Two intervals without a gap are one. */
static life life_of(const ab_plan_tensor *t) {
    const interval live = between(t->first, t->last), again = between(t->recompute_first, t->recompute_last);
    if (!meet(live, again)) return (life){live, again};
    return (life){{live.first < again.first ? live.first : again.first,
                   live.last > again.last ? live.last : again.last},
                  never};
}

/* Bytes of a pool that tensors of one size hold one after the other: those with equal offset and end. Their
 * lifetimes do not meet, so they are in an order. Tensors come in an order of time or against it, so there is
 * room on both sides. */
typedef struct slot {
    int64_t offset, end;
    interval *held; /* [room], of which [from, from + count) are used; owned */
    int from, count, room;
} slot;

/* Intervals that end before a position. */
static int count_before(const slot *s, int position) {
    int low = 0, high = s->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->held[s->from + middle].last < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_free(const slot *s, interval a) {
    if (a.last < a.first || s->count == 0 || a.first > s->held[s->from + s->count - 1].last) return true;
    return s->held[s->from + count_before(s, a.first)].first > a.last;
}

static bool make_room(slot *s) {
    if (s->from > 0 && s->from + s->count < s->room) return true;
    const int room = 3 * s->count + 3, from = s->count + 1;
    interval *held = malloc((size_t)room * sizeof *held);
    if (!held) return false;
    if (s->count) memcpy(held + from, s->held + s->from, (size_t)s->count * sizeof *held);
    free(s->held);
    s->held = held;
    s->from = from;
    s->room = room;
    return true;
}

/* Adds an interval that meets no other, moving the shorter side. False: out of memory. */
static bool hold(slot *s, interval a) {
    if (a.last < a.first) return true;
    if (!make_room(s)) return false;
    const int at = count_before(s, a.first);
    interval *used = s->held + s->from;
    if (at < s->count - at) {
        memmove(used - 1, used, (size_t)at * sizeof *used);
        s->from--;
    } else {
        memmove(used + at + 1, used + at, (size_t)(s->count - at) * sizeof *used);
    }
    s->held[s->from + at] = a;
    s->count++;
    return true;
}

/* The positions that all intervals of a set have in common, if any: from the last start to the first end. */
typedef struct common {
    int last_first, first_last;
} common;

static void narrow(common *c, interval a) {
    if (a.first > c->last_first) c->last_first = a.first;
    if (a.last < c->first_last) c->first_last = a.last;
}

static bool meets_each(const common *c, interval a) {
    return a.first <= c->first_last && c->last_first <= a.last;
}

/* What is placed of a category. */
typedef struct pool {
    slot *slot; /* [slots], by offset, then end */
    int slots;
    int64_t end;         /* of the last slot */
    common live, latest; /* of lifetimes before recomputation; of the later part of each lifetime */
} pool;

/* Every offset is 0 or the end of another tensor, so the tensors placed so far cover the pool without a gap.
 */
static bool meets_all(const pool *p, const life *tensor) {
    return meets_each(&p->live, tensor->live) || meets_each(&p->latest, tensor->live) ||
           meets_each(&p->latest, tensor->again);
}

/* Lowest offset at which a tensor overlaps no placed tensor with an overlapping lifetime. Slots are in the
 * order of offsets: what starts behind the gap found so far cannot narrow it. */
static int64_t first_fit(const pool *p, const life *tensor, int64_t bytes) {
    int64_t offset = 0;
    if (meets_all(p, tensor)) return p->end;
    for (int i = 0; i < p->slots && p->slot[i].offset < offset + bytes; i++) {
        const slot *s = &p->slot[i];
        if (s->end > offset && !(is_free(s, tensor->again) && is_free(s, tensor->live))) offset = s->end;
    }
    return offset;
}

/* The slot from `offset` to `end`, which is added if there is none. */
static slot *slot_at(pool *p, int64_t offset, int64_t end) {
    int low = 0, high = p->slots;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const slot *s = &p->slot[middle];
        if (s->offset < offset || (s->offset == offset && s->end < end))
            low = middle + 1;
        else
            high = middle;
    }
    slot *found = &p->slot[low];
    if (low < p->slots && found->offset == offset && found->end == end) return found;
    memmove(found + 1, found, (size_t)(p->slots - low) * sizeof *found);
    *found = (slot){.offset = offset, .end = end};
    p->slots++;
    return found;
}

/* False: out of memory. */
static bool place(pool *p, ab_plan_tensor *t) {
    const life tensor = life_of(t);
    t->offset = first_fit(p, &tensor, t->bytes);
    slot *s = slot_at(p, t->offset, t->offset + t->bytes);
    if (s->end > p->end) p->end = s->end;
    narrow(&p->live, tensor.live);
    narrow(&p->latest, tensor.again.last < tensor.again.first ? tensor.live : tensor.again);
    return hold(s, tensor.live) && hold(s, tensor.again);
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

/* Places the transient tensors of one category; `list` and `room` have room for all tensors. */
static ab_status place_category(ab_plan *plan, ab_mem_category category, ab_plan_tensor **list, slot *room) {
    pool p = {.slot = room, .live = {0, INT_MAX}, .latest = {0, INT_MAX}};
    int count = 0;
    bool fine = true;
    for (int i = 0; i < plan->tensors; i++)
        if (plan->tensor[i].transient && plan->tensor[i].category == category &&
            plan->tensor[i].shares == AB_NONE)
            list[count++] = &plan->tensor[i];
    qsort(list, (size_t)count, sizeof *list, compare_places);
    for (int i = 0; i < count && fine; i++) fine = place(&p, list[i]);
    for (int i = 0; i < p.slots; i++) free(room[i].held);
    plan->pool_bytes[category] = p.end;
    plan->bytes[category] += p.end;
    return fine ? AB_OK : ab_fail(AB_NO_MEMORY, "plan: out of memory");
}

ab_status ab_plan_place(ab_plan *plan) {
    ab_status status = AB_OK;
    lifetimes(plan);
    for (int i = 0; i < plan->tensors; i++)
        if (!plan->tensor[i].transient) plan->bytes[plan->tensor[i].category] += plan->tensor[i].bytes;
    ab_plan_tensor **list = malloc((size_t)plan->tensors * sizeof *list);
    slot *room = malloc((size_t)plan->tensors * sizeof *room);
    if (!list || !room) status = ab_fail(AB_NO_MEMORY, "plan: out of memory");
    for (int category = 0; status == AB_OK && category < AB_MEM_CATEGORY_COUNT; category++)
        status = place_category(plan, (ab_mem_category)category, list, room);
    free(list);
    free(room);
    if (status == AB_OK) follow_shared(plan);
    return status;
}
