/* Gradients of simulated ranks. Buckets are filled in reverse order of the parameters, as torch's DDP fills
 * them: the last layer's gradients are ready first. */
#include "bench/train/ranks/rank_gradients.h"

#include "kernels/format/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ab_tensor *tensor_of(const ab_rank_gradients *g, int item) { return g->tensor[item]; }

/* What is sent once a step is what is unscaled, else what the backward pass writes: with masters that sum
 * micro-batches each one's own gradient, as apex's amp leaves it to its DistributedDataParallel. */
static void find_tensors(ab_rank_gradients *g) {
    const ab_cell_memory *memory = g->gradients->memory;
    const ab_trained_params *trained = g->gradients->trained;
    for (int i = 0; i < trained->count; i++) g->tensor[i] = g->gradients->item[i].from;
    for (int p = 0; p < memory->plan->params; p++) {
        const int item = trained->place[p];
        if (item < 0) continue;
        g->fresh[item] = &memory->tensor[memory->plan->param[p].grad];
        if (ab_rank_gradients_every_batch(g)) g->tensor[item] = g->fresh[item];
    }
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

/* Sums in the wire format of simulated ranks are where they are sent from. */
static bool keeps_sums(const ab_rank_recipe *ranks, int64_t micro_batches, bool processes) {
    return ab_rank_reduces_every_batch(ranks, micro_batches) ||
           (processes && ab_rank_adds_in_wire(ranks, micro_batches));
}

ab_status ab_rank_gradients_init(ab_rank_gradients *g, const ab_rank_recipe *recipe,
                                 const ab_gradients *gradients) {
    if (recipe->count < 2) return AB_OK;
    const size_t batches = (size_t)(recipe->count * gradients->position->micro_batches);
    *g = (ab_rank_gradients){.recipe = recipe, .gradients = gradients};
    g->first = calloc((size_t)gradients->trained->count + 1, sizeof *g->first);
    g->loss = calloc(batches + 1, sizeof *g->loss);
    g->tensor = calloc((size_t)gradients->trained->count + 1, sizeof(ab_tensor *));
    g->fresh = calloc((size_t)gradients->trained->count + 1, sizeof(ab_tensor *));
    if (!g->first || !g->loss || !g->tensor || !g->fresh) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    g->count = list(g);
    g->row = calloc((size_t)recipe->count, sizeof *g->row);
    if (!g->row) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    const bool simulated = !ab_rank_link_is_open();
    if (!simulated) {
        AB_TRY(ab_rank_exchange_init(g));
    } else {
        g->count_of = calloc((size_t)gradients->trained->count + 1, sizeof *g->count_of);
        if (!g->count_of) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    }
    void *value = NULL, *sum = NULL, *kept = NULL;
    ab_status status = simulated ? take(g, value_bytes(g->count, recipe->count), &value) : AB_OK;
    g->value = value;
    if (status == AB_OK) status = take(g, value_bytes(g->count, 1), &sum);
    g->sum = sum;
    if (status == AB_OK && keeps_sums(recipe, gradients->position->micro_batches, !simulated))
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
    const bool processes = ab_rank_place_get().ranks > 0;
    const int64_t own = keeps_sums(&recipe->ranks, recipe->micro_batches, processes) ? 2 : 1;
    const int64_t values = processes ? 0 : ab_mem_rounded(value_bytes(count, ranks));
    return values + own * ab_mem_rounded(value_bytes(count, 1));
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
    free(g->row);
    free(g->tensor);
    free(g->fresh);
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
        while (finite < ranks && isfinite(sent[finite * g->count])) finite++;
        g->count_of[item].overflowed += finite == ranks;
    }
}

/* FSDP2's unsharded_accumulated_grad: in reduce_dtype, to which the first gradient is cast, and later ones
 * are added as they are. */
ab_status ab_rank_gradients_add(ab_rank_gradients *g, int64_t rank) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    float *sums = g->kept ? g->kept : g->value + rank * g->count;
    const bool first = g->gradients->position->micro == 0;
    for (int i = 0; i < g->gradients->trained->count; i++) {
        const int64_t n = ab_tensor_count(g->fresh[i]);
        float *sum = sums + g->first[i];
        AB_TRY(ab_tensor_read(g->fresh[i], g->sum));
        for (int64_t k = 0; k < n; k++) sum[k] = first ? g->sum[k] : sum[k] + g->sum[k];
        ab_round_array(sum, ab_rank_reduction_of(g, i).wire, &nearest, n);
    }
    return AB_OK;
}

ab_status ab_rank_gradients_keep(ab_rank_gradients *g, int64_t rank) {
    if (g->layout.ranks > 0) return ab_rank_exchange_keep(g);
    if (g->counts && rank == 0) AB_TRY(start_counting(g));
    for (int i = 0; i < g->gradients->trained->count; i++) {
        const ab_reduction reduction = ab_rank_reduction_of(g, i);
        float *to = g->value + rank * g->count + g->first[i];
        const int64_t n = ab_tensor_count(tensor_of(g, i));
        if (ab_rank_gradients_in_wire(g))
            memcpy(g->sum, to, (size_t)n * sizeof *to);
        else
            AB_TRY(ab_tensor_read(tensor_of(g, i), g->sum));
        ab_reduce_send(&reduction, g->recipe->count, g->sum, to, n);
        if (g->counts) count_sent(g, i, g->sum, to);
    }
    return AB_OK;
}

/* ---- reduction ------------------------------------------------------------------------------- */

/* The kept contributions of simulated ranks into g->sum. */
static ab_status reduce_kept(const ab_rank_gradients *g, int item) {
    const ab_rank_part part = {.item = item,
                               .from = g->first[item],
                               .count = ab_tensor_count(tensor_of(g, item)),
                               .row = g->row,
                               .sent = &ab_format_fp32,
                               .result = &ab_format_fp32,
                               .means = (unsigned char *)g->sum};
    for (int64_t r = 0; r < g->recipe->count; r++)
        g->row[r] = (const unsigned char *)(g->value + r * g->count + g->first[item]);
    return ab_rank_reduce_part(g, &part);
}

ab_status ab_rank_gradients_reduce(ab_rank_gradients *g) {
    if (g->layout.ranks > 0) return ab_rank_exchange_reduce(g);
    for (int i = 0; i < g->gradients->trained->count; i++) {
        AB_TRY(reduce_kept(g, i));
        if (g->counts) count_results(g, i);
        if (g->noted && !g->counts) count_overflows(g, i);
        AB_TRY(ab_tensor_write(tensor_of(g, i), g->sum));
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
