/* Gradients of simulated ranks. Buckets are filled in reverse order of the parameters, as torch's DDP fills
 * them: the last layer's gradients are ready first. */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/core/parallel.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 1024 };

static ab_tensor *tensor_of(const ab_rank_gradients *g, int item) { return g->tensor[item]; }

static bool reduces_every_batch(const ab_rank_recipe *ranks, int64_t micro_batches) {
    return ranks->every != AB_REDUCE_STEP && micro_batches > 1;
}

bool ab_rank_gradients_every_batch(const ab_rank_gradients *g) {
    return g->recipe && reduces_every_batch(g->recipe, g->gradients->position->micro_batches);
}

bool ab_rank_gradients_end_step(const ab_rank_gradients *g) {
    const ab_step_position *at = g->gradients->position;
    return !ab_rank_gradients_every_batch(g) || at->micro >= at->micro_batches;
}

ab_reduction ab_rank_reduction_of(const ab_rank_gradients *g, int item) {
    ab_reduction reduction = g->recipe->reduction;
    if (!reduction.wire) reduction.wire = tensor_of(g, item)->format;
    return reduction;
}

/* What is sent once a step is what is unscaled, else what the backward pass writes: with masters that sum
 * micro-batches each one's own gradient, as apex's amp leaves it to its DistributedDataParallel. */
static void find_tensors(ab_rank_gradients *g) {
    const ab_cell_memory *memory = g->gradients->memory;
    const ab_trained_params *trained = g->gradients->trained;
    for (int i = 0; i < trained->count; i++) g->tensor[i] = g->gradients->item[i].from;
    for (int p = 0; p < memory->plan->params && ab_rank_gradients_every_batch(g); p++)
        if (trained->place[p] >= 0)
            g->tensor[trained->place[p]] = &memory->tensor[memory->plan->param[p].grad];
}

static int64_t list(ab_rank_gradients *g) {
    int64_t count = 0;
    find_tensors(g);
    for (int i = g->gradients->trained->count - 1; i >= 0; i--) {
        g->first[i] = count;
        count += ab_tensor_count(tensor_of(g, i));
    }
    return count;
}

static int64_t value_bytes(int64_t count, int64_t ranks) {
    return (count + 1) * ranks * (int64_t)sizeof(float);
}

/* Host memory: of the cell where its tensors are there, else beside it. */
static ab_status take(ab_rank_gradients *g, int64_t bytes, void **block) {
    g->owned = !g->gradients->memory->backend->host_memory;
    if (!g->owned) return ab_mem_alloc(g->gradients->memory->mem, AB_MEM_gradients, bytes, block);
    *block = calloc((size_t)bytes, 1);
    return *block ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory");
}

ab_status ab_rank_gradients_init(ab_rank_gradients *g, const ab_rank_recipe *recipe,
                                 const ab_gradients *gradients) {
    if (recipe->count < 2) return AB_OK;
    const size_t batches = (size_t)(recipe->count * gradients->position->micro_batches);
    *g = (ab_rank_gradients){.recipe = recipe, .gradients = gradients};
    g->first = calloc((size_t)gradients->trained->count + 1, sizeof *g->first);
    g->loss = calloc(batches + 1, sizeof *g->loss);
    g->tensor = calloc((size_t)gradients->trained->count + 1, sizeof(ab_tensor *));
    if (!g->first || !g->loss || !g->tensor) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    g->count = g->stride = list(g);
    if (ab_rank_link_is_open()) {
        AB_TRY(ab_rank_exchange_init(g));
    } else {
        g->count_of = calloc((size_t)gradients->trained->count + 1, sizeof *g->count_of);
        if (!g->count_of) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    }
    void *value = NULL, *sum = NULL, *kept = NULL;
    ab_status status = take(g, value_bytes(g->stride, recipe->count), &value);
    g->value = value;
    if (status == AB_OK) status = take(g, value_bytes(g->count, 1), &sum);
    g->sum = sum;
    if (status == AB_OK && ab_rank_gradients_every_batch(g))
        status = take(g, value_bytes(g->count, 1), &kept);
    g->kept = kept;
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--ranks %lld", (long long)recipe->count);
}

int64_t ab_rank_gradients_bytes(const ab_plan *plan, const ab_recipe *recipe, ab_mem_category category) {
    const int64_t ranks = recipe->ranks.count;
    int64_t count = 0;
    if (ranks < 2 || category != AB_MEM_gradients) return 0;
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].grad != AB_NONE)
            count += ab_shape_count(&ab_params_spec(plan, &plan->param[p])->shape);
    const int64_t processes = ab_rank_place_get().ranks; /* each may keep a share of the others' gradients */
    const bool shares = processes > 0 && ab_rank_shares(count, processes, recipe->ranks.bucket_bytes);
    const int64_t kept = shares ? (count + processes - 1) / processes : count;
    const int64_t own = reduces_every_batch(&recipe->ranks, recipe->micro_batches) ? 2 : 1;
    return ab_mem_rounded(value_bytes(kept, ranks)) + own * ab_mem_rounded(value_bytes(count, 1));
}

void ab_rank_gradients_fini(ab_rank_gradients *g) {
    if (g->owned) {
        free(g->value);
        free(g->sum);
        free(g->kept);
    }
    free(g->count_of);
    free(g->exact);
    free(g->finite);
    free(g->first);
    free(g->tensor);
    free(g->loss);
    ab_rank_layout_fini(&g->layout);
    *g = (ab_rank_gradients){.value = NULL};
}

/* ---- counts of what the reduction does ------------------------------------------------------- */

static ab_status start_counting(ab_rank_gradients *g) {
    const size_t count = (size_t)g->count;
    if (!g->exact) g->exact = malloc((count + 1) * sizeof *g->exact);
    if (!g->finite) g->finite = malloc((count + 1) * sizeof *g->finite);
    if (!g->exact || !g->finite) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int64_t k = 0; k < g->count; k++) {
        g->exact[k] = 0;
        g->finite[k] = true;
    }
    return AB_OK;
}

/* before: the gradient of a rank; after: as it is sent. */
static void count_sent(ab_rank_gradients *g, int item, const float *before, const float *after) {
    const int64_t n = ab_tensor_count(tensor_of(g, item)), first = g->first[item];
    ab_reduction_count_sent(&g->count_of[item], before, after, g->exact + first, n);
    for (int64_t k = 0; k < n; k++) g->finite[first + k] &= isfinite(after[k]) != 0;
}

static void count_results(ab_rank_gradients *g, int item) {
    const int64_t first = g->first[item];
    ab_reduction_count_results(&g->count_of[item], g->sum, g->exact + first, g->finite + first,
                               g->recipe->count, ab_tensor_count(tensor_of(g, item)));
}

/* Results that are not finite, of contributions that are. */
static void count_overflows(ab_rank_gradients *g, int item) {
    const int64_t n = ab_tensor_count(tensor_of(g, item)), ranks = g->recipe->count;
    for (int64_t k = 0; k < n; k++) {
        if (isfinite(g->sum[k])) continue;
        int64_t finite = 0;
        const float *sent = g->value + g->first[item] + k;
        while (finite < ranks && isfinite(sent[finite * g->stride])) finite++;
        g->count_of[item].overflowed += finite == ranks;
    }
}

ab_status ab_rank_gradients_keep(ab_rank_gradients *g, int64_t rank) {
    if (g->layout.ranks > 0) return ab_rank_exchange_keep(g);
    if (g->counts && rank == 0) AB_TRY(start_counting(g));
    for (int i = 0; i < g->gradients->trained->count; i++) {
        const ab_reduction reduction = ab_rank_reduction_of(g, i);
        float *to = g->value + rank * g->stride + g->first[i];
        AB_TRY(ab_tensor_read(tensor_of(g, i), g->sum));
        ab_reduce_send(&reduction, g->recipe->count, g->sum, to, ab_tensor_count(tensor_of(g, i)));
        if (g->counts) count_sent(g, i, g->sum, to);
    }
    return AB_OK;
}

/* ---- reduction ------------------------------------------------------------------------------- */

/* A part of one gradient, by blocks. */
typedef struct work {
    const ab_rank_gradients *ranks;
    ab_reduction reduction;
    int64_t first, count, bucket; /* elements; of a bucket */
    const float *value;           /* element `first` of rank 0 */
    float *sum;                   /* [count] */
    float *scratch;               /* [threads][scratch_each] */
    int64_t scratch_each;
    const float **row; /* [threads][2 x ranks] */
} work;

static void reduce_block(void *argument, int64_t index, int thread) {
    const work *w = argument;
    const int64_t ranks = w->ranks->recipe->count, at = index * BLOCK, left = w->count - at;
    const float **row = w->row + thread * 2 * ranks;
    for (int64_t r = 0; r < ranks; r++) row[r] = w->value + r * w->ranks->stride + at;
    const ab_reduce_block block = {.row = row,
                                   .ranks = ranks,
                                   .n = left < BLOCK ? left : BLOCK,
                                   .sum = w->sum + at,
                                   .scratch = w->scratch + thread * w->scratch_each};
    ab_reduce_range(&w->reduction, &block, w->first + at, w->bucket, row + ranks);
    ab_reduce_finish(&w->reduction, ranks, block.sum, block.n);
}

ab_status ab_rank_reduce_part(const ab_rank_gradients *g, int item, int64_t from, int64_t count,
                              const float *row, float *sum) {
    const size_t threads = (size_t)ab_parallel_threads(), ranks = (size_t)g->recipe->count;
    const int64_t each = ab_reduce_scratch(&g->recipe->reduction, g->recipe->count, BLOCK);
    work w = {.ranks = g,
              .reduction = ab_rank_reduction_of(g, item),
              .first = from,
              .count = count,
              .value = row,
              .sum = sum,
              .scratch = malloc((threads * (size_t)each + 1) * sizeof(float)),
              .scratch_each = each,
              .row = malloc(threads * 2 * ranks * sizeof(float *))};
    ab_status status = AB_OK;
    w.bucket = ab_reduce_bucket(&w.reduction, g->recipe->bucket_bytes);
    if (w.scratch && w.row)
        ab_parallel_for((count + BLOCK - 1) / BLOCK, reduce_block, &w);
    else
        status = ab_fail(AB_NO_MEMORY, "cell: out of memory");
    free(w.scratch);
    free(w.row);
    return status;
}

ab_status ab_rank_gradients_reduce(ab_rank_gradients *g) {
    if (g->layout.ranks > 0) return ab_rank_exchange_reduce(g);
    for (int i = 0; i < g->gradients->trained->count; i++) {
        ab_tensor *tensor = tensor_of(g, i);
        AB_TRY(
            ab_rank_reduce_part(g, i, g->first[i], ab_tensor_count(tensor), g->value + g->first[i], g->sum));
        if (g->counts) count_results(g, i);
        if (g->noted && !g->counts) count_overflows(g, i);
        AB_TRY(ab_tensor_write(tensor, g->sum));
    }
    g->counted_steps += g->counts && ab_rank_gradients_end_step(g);
    return AB_OK;
}

/* ---- several reductions a step --------------------------------------------------------------- */

static bool is_summed_by_master(const ab_rank_gradients *g, int item) {
    return tensor_of(g, item) != g->gradients->item[item].from;
}

ab_status ab_rank_gradients_begin(ab_rank_gradients *g) {
    if (!g->kept || g->layout.ranks > 0 || g->recipe->every != AB_REDUCE_ACCUMULATED ||
        g->gradients->position->micro == 0)
        return AB_OK;
    for (int i = 0; i < g->gradients->trained->count; i++)
        if (!is_summed_by_master(g, i)) AB_TRY(ab_tensor_write(tensor_of(g, i), g->kept + g->first[i]));
    return AB_OK;
}

/* The sum is rounded to the gradient's format, as `grad += mean` is. */
static ab_status add_mean(ab_rank_gradients *g, int item) {
    const int64_t n = ab_tensor_count(tensor_of(g, item));
    const float *kept = g->kept + g->first[item];
    AB_TRY(ab_tensor_read(tensor_of(g, item), g->sum));
    for (int64_t k = 0; k < n; k++) g->sum[k] = kept[k] + g->sum[k];
    return ab_tensor_write(tensor_of(g, item), g->sum);
}

ab_status ab_rank_gradients_accumulate(ab_rank_gradients *g) {
    const bool adds = g->recipe->every == AB_REDUCE_MICRO_BATCH && g->gradients->position->micro > 0;
    for (int i = 0; i < g->gradients->trained->count; i++) {
        if (is_summed_by_master(g, i)) continue;
        if (adds) AB_TRY(add_mean(g, i));
        AB_TRY(ab_tensor_read(tensor_of(g, i), g->kept + g->first[i]));
    }
    return AB_OK;
}
