/* The memory that ranks which are processes exchange: buckets of gradients, and the share of each rank. */
#include "bench/train/ranks/rank_gradients.h"

#include <stdlib.h>

enum { ALIGNED = 64, FIRST_BUCKET = 1 << 20 };

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static int64_t elements_of(const ab_rank_gradients *g, int item) { return ab_tensor_count(g->tensor[item]); }

const ab_format *ab_rank_sent_format(const ab_rank_gradients *g, int item) {
    const ab_reduction reduction = ab_rank_reduction_of(g, item);
    return reduction.scheme->sums_wide ? &ab_format_fp32 : reduction.wire;
}

static size_t value_bytes(const ab_rank_gradients *g, int item) {
    return (size_t)ab_rank_sent_format(g, item)->storage_bytes;
}

/* The gradient that holds an element. */
static int item_of(const ab_rank_gradients *g, int64_t element) {
    int item = 0;
    while (g->first[item] > element) item++; /* in reverse order of the parameters */
    return item;
}

size_t ab_rank_byte_of(const ab_rank_gradients *g, int64_t element) {
    const int item = item_of(g, element);
    return g->layout.byte[item] + (size_t)(element - g->first[item]) * value_bytes(g, item);
}

/* Bytes of all gradients; the last parameter's first. */
static size_t place_gradients(ab_rank_gradients *g) {
    size_t bytes = 0;
    for (int i = g->gradients->trained->count - 1; i >= 0; i--) {
        g->layout.byte[i] = bytes;
        bytes += aligned((size_t)elements_of(g, i) * value_bytes(g, i));
    }
    return bytes;
}

/* The first node, and so the last of the backward pass, that adds to each gradient. */
static void find_nodes(ab_rank_gradients *g) {
    const ab_plan *plan = g->gradients->memory->plan;
    const int *place = g->gradients->trained->place;
    for (int n = plan->nodes - 1; n >= 0; n--)
        for (int i = 0; i < plan->node[n].params; i++) {
            const int own = plan->node[n].first_param + i, owner = plan->param[own].owner,
                      item = place[owner == AB_NONE ? own : owner];
            if (item >= 0) g->layout.node[item] = n;
        }
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Bytes that fill a bucket. As torch's DDP: the first is small, so that its transfer begins early. Never more
 * buckets than there is room for. */
static double limit_of(const ab_rank_gradients *g, int bucket, size_t bytes) {
    const double least = (double)bytes / (AB_RANK_BUCKETS - 1) + 1, wanted = g->recipe->bucket_bytes,
                 limit = bucket == 0 && wanted > FIRST_BUCKET ? FIRST_BUCKET : wanted;
    return limit > least ? limit : least;
}

static void fill_buckets(ab_rank_gradients *g, size_t bytes) {
    ab_rank_layout *l = &g->layout;
    for (int i = g->gradients->trained->count - 1; i >= 0;) {
        ab_rank_bucket *b = &l->bucket[l->buckets];
        const double limit = limit_of(g, l->buckets++, bytes);
        *b = (ab_rank_bucket){.first = i, .last = i, .node = l->node[i], .at = l->byte[i], .end = l->byte[i]};
        for (; i >= 0 && (double)(b->end - b->at) < limit; i--) {
            b->first = i;
            b->end = l->byte[i] + aligned((size_t)elements_of(g, i) * value_bytes(g, i));
            if (l->node[i] < b->node) b->node = l->node[i];
        }
    }
}

/* Large gradients, in many buckets or of many ranks. */
static bool wants_shares(int64_t count, int64_t ranks, double bucket_bytes) {
    enum { ELEMENTS_MOST = 1 << 20 }; /* that come to a rank: 4 MiB of fp32 */
    return (double)count * sizeof(float) > bucket_bytes || (ranks - 1) * count > ELEMENTS_MOST;
}

/* Shares of equal numbers of elements, or all of them to each. The last element's bytes end a share. */
static void cut(ab_rank_gradients *g, ab_rank_bucket *b) {
    const ab_rank_layout *l = &g->layout;
    const int64_t first = g->first[b->last], count = g->first[b->first] + elements_of(g, b->first) - first;
    for (int r = 0; r < l->ranks; r++) {
        ab_rank_share *s = &b->share[r];
        *s = (ab_rank_share){.from = l->shares ? first + count * r / l->ranks : first,
                             .until = l->shares ? first + count * (r + 1) / l->ranks : first + count};
        if (s->from == s->until) continue;
        s->at = ab_rank_byte_of(g, s->from);
        s->end = ab_rank_byte_of(g, s->until - 1) + value_bytes(g, item_of(g, s->until - 1));
    }
}

static void cut_all(ab_rank_gradients *g) {
    ab_rank_layout *l = &g->layout;
    for (int k = 0; k < l->buckets; k++) {
        ab_rank_bucket *b = &l->bucket[k];
        b->share = l->share + (size_t)k * (size_t)l->ranks;
        cut(g, b);
        b->other = l->other_bytes;
        l->other_bytes += aligned(b->share[l->rank].end - b->share[l->rank].at) + ALIGNED;
    }
}

ab_status ab_rank_layout_init(ab_rank_gradients *g, size_t note_bytes) {
    ab_rank_layout *l = &g->layout;
    const size_t items = (size_t)g->gradients->trained->count;
    const ab_rank_place place = ab_rank_place_get();
    l->rank = place.rank;
    l->ranks = place.ranks;
    l->byte = calloc(items + 1, sizeof *l->byte);
    l->node = calloc(items + 1, sizeof *l->node);
    l->share = calloc(AB_RANK_BUCKETS * (size_t)l->ranks, sizeof *l->share);
    if (!l->byte || !l->node || !l->share) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    const size_t bytes = place_gradients(g);
    l->shares = wants_shares(g->count, l->ranks, g->recipe->bucket_bytes);
    find_nodes(g);
    fill_buckets(g, bytes);
    cut_all(g);
    l->note_bytes = aligned(note_bytes);
    l->own = l->note_bytes * (size_t)l->ranks;
    l->half = l->own + bytes;
    l->others = 2 * l->half;
    l->bytes = l->others + l->other_bytes * (size_t)l->ranks;
    return AB_OK;
}

void ab_rank_layout_turn(ab_rank_layout *l) {
    l->ended[l->turn] = l->last;
    l->turn = 1 - l->turn;
    l->notes = l->turn ? l->half : 0;
    l->own = l->notes + l->note_bytes * (size_t)l->ranks;
}

void ab_rank_layout_fini(ab_rank_layout *layout) {
    free(layout->byte);
    free(layout->node);
    free(layout->share);
}

size_t ab_rank_contribution_of(const ab_rank_layout *l, const ab_rank_bucket *b, int r) {
    const size_t at = b->share[l->rank].at;
    if (r == l->rank) return l->own + at;
    return l->others + (size_t)r * l->other_bytes + b->other + at % ALIGNED;
}
