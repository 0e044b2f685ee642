/* Which reductions a step has, and one of them: a part of a gradient, block by block. */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <stdlib.h>

enum { BLOCK = 1024 };

bool ab_rank_reduces_every_batch(const ab_rank_recipe *ranks, int64_t micro_batches) {
    const bool once = ranks->every == AB_REDUCE_STEP || ranks->every == AB_REDUCE_STEP_IN_WIRE;
    return !once && micro_batches > 1;
}

bool ab_rank_adds_in_wire(const ab_rank_recipe *ranks, int64_t micro_batches) {
    return ranks->every == AB_REDUCE_STEP_IN_WIRE && micro_batches > 1;
}

bool ab_rank_gradients_in_wire(const ab_rank_gradients *g) {
    return g->recipe && ab_rank_adds_in_wire(g->recipe, g->gradients->position->micro_batches);
}

bool ab_rank_batches_are_apart(const ab_rank_recipe *ranks) {
    return ranks->every == AB_REDUCE_MICRO_BATCH || ranks->every == AB_REDUCE_STEP_IN_WIRE;
}

bool ab_rank_gradients_every_batch(const ab_rank_gradients *g) {
    return g->recipe && ab_rank_reduces_every_batch(g->recipe, g->gradients->position->micro_batches);
}

bool ab_rank_gradients_end_step(const ab_rank_gradients *g) {
    const ab_step_position *at = g->gradients->position;
    return !ab_rank_gradients_every_batch(g) || at->micro >= at->micro_batches;
}

ab_reduction ab_rank_reduction_of(const ab_rank_gradients *g, int item) {
    ab_reduction reduction = g->recipe->reduction;
    const ab_tensor *own = ab_rank_gradients_in_wire(g) ? g->fresh[item] : g->tensor[item];
    if (!reduction.wire) reduction.wire = own->format;
    return reduction;
}

/* A part of one gradient, by blocks, each in memory of its thread: sums, what the scheme needs, and
 * contributions that are not sent in fp32. */
typedef struct work {
    const ab_rank_part *part;
    ab_reduction reduction;
    int64_t ranks, bucket; /* bucket: elements */
    float *scratch;        /* [threads][each] */
    int64_t each, scheme;  /* floats: of a thread; of them, the scheme's */
    const float **row;     /* [threads][2 x ranks] */
} work;

static bool is_read_in_place(const ab_rank_part *part) { return part->sent == &ab_format_fp32; }

/* [BLOCK] of rank r from element `at` of the part on; `wide`: of this thread. */
static const float *contribution(const work *w, int64_t r, int64_t at, int64_t n, float *wide) {
    const unsigned char *sent = w->part->row[r] + at * w->part->sent->storage_bytes;
    if (is_read_in_place(w->part)) return (const float *)(const void *)sent;
    ab_widen(wide + r * BLOCK, sent, w->part->sent, n);
    return wide + r * BLOCK;
}

static void reduce_block(void *argument, int64_t index, int thread) {
    const work *w = argument;
    const ab_rank_part *part = w->part;
    const int64_t at = index * BLOCK, left = part->count - at, n = left < BLOCK ? left : BLOCK;
    const float **row = w->row + thread * 2 * w->ranks;
    float *sum = w->scratch + thread * w->each, *scheme = sum + BLOCK, *wide = scheme + w->scheme;
    for (int64_t r = 0; r < w->ranks; r++) row[r] = contribution(w, r, at, n, wide);
    const ab_reduce_block block = {.row = row, .ranks = w->ranks, .n = n, .sum = sum, .scratch = scheme};
    ab_reduce_range(&w->reduction, &block, part->from + at, w->bucket, row + w->ranks);
    ab_reduce_finish(&w->reduction, w->ranks, sum, n);
    ab_narrow(part->means + at * (int64_t)ab_format_bytes(part->result, 1), part->result, sum, n);
}

ab_status ab_rank_reduce_part(const ab_rank_gradients *g, const ab_rank_part *part) {
    const int64_t ranks = g->recipe->count, threads = ab_parallel_threads();
    work w = {.part = part,
              .reduction = ab_rank_reduction_of(g, part->item),
              .ranks = ranks,
              .scheme = ab_reduce_scratch(&g->recipe->reduction, ranks, BLOCK)};
    ab_status status = AB_OK;
    w.bucket = ab_reduce_bucket(&w.reduction, g->recipe->bucket_bytes);
    w.each = BLOCK + w.scheme + (is_read_in_place(part) ? 0 : ranks * BLOCK);
    w.scratch = malloc((size_t)(threads * w.each) * sizeof(float));
    w.row = malloc((size_t)(threads * 2 * ranks) * sizeof(float *));
    if (w.scratch && w.row)
        ab_parallel_for((part->count + BLOCK - 1) / BLOCK, reduce_block, &w);
    else
        status = ab_fail(AB_NO_MEMORY, "cell: out of memory");
    free(w.scratch);
    free(w.row);
    return status;
}
