/* Blocks of elements: contributions as they are sent, summed chunk by chunk, compared with the mean in
 * double. */
#include "bench/ranks/simulate.h"

#include "kernels/core/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory of one thread. */
typedef struct desk {
    float *sent;        /* [micro_batches][AB_RANKS_BLOCK] */
    float *scratch;     /* of the scheme */
    const float **row;  /* [ranks] */
    const float **base; /* [ranks]: row of element 0 of the block */
} desk;

typedef struct work {
    const ab_ranks_job *job;
    desk *desk;           /* [threads] */
    ab_ranks_sums *block; /* [blocks] */
    const int32_t *dealt; /* [micro_batches]: how many ranks have it */
} work;

void ab_ranks_sums_add(ab_ranks_sums *into, const ab_ranks_sums *from) {
    into->error2 += from->error2;
    into->dot += from->dot;
    into->size2 += from->size2;
    into->mean2 += from->mean2;
    into->variance += from->variance;
    into->finite += from->finite;
    into->not_finite += from->not_finite;
    into->overflowed += from->overflowed;
    into->nonzero += from->nonzero;
    into->flushed += from->flushed;
}

static int64_t blocks_of(int64_t count, int64_t stride) {
    int64_t blocks = (count + AB_RANKS_BLOCK - 1) / AB_RANKS_BLOCK;
    return (blocks + stride - 1) / stride;
}

int64_t ab_ranks_selected(int64_t count, int64_t stride) {
    int64_t blocks = blocks_of(count, stride), last = (blocks - 1) * stride * AB_RANKS_BLOCK;
    int64_t rest = count - last < AB_RANKS_BLOCK ? count - last : AB_RANKS_BLOCK;
    return (blocks - 1) * AB_RANKS_BLOCK + rest;
}

/* ---- one block ------------------------------------------------------------------------------- */

/* One element of all micro-batches beside the result. */
static void judge(const work *w, int64_t element, float result, ab_ranks_sums *sums) {
    const ab_ranks_job *job = w->job;
    double mean = 0, sum = 0, square = 0;
    for (int m = 0; m < job->micro_batches; m++) {
        double x = (double)(job->value[m * job->count + element] * job->scale);
        mean += x * (double)w->dealt[m];
        sum += x;
        square += x * x;
    }
    mean /= (double)job->ranks;
    if (!isfinite(square)) {
        sums->not_finite++;
        return;
    }
    double of_all = sum / job->micro_batches;
    sums->variance += fmax(0, square - sum * of_all) / (job->micro_batches - 1);
    sums->mean2 += mean * mean;
    sums->finite++;
    sums->nonzero += mean != 0;
    sums->flushed += mean != 0 && result == 0;
    if (!isfinite(result)) {
        sums->overflowed++;
        return;
    }
    double difference = (double)result - mean;
    sums->error2 += difference * difference;
    sums->dot += (double)result * mean;
    sums->size2 += mean * mean;
}

static void simulate_block(void *argument, int64_t index, int thread) {
    const work *w = argument;
    const ab_ranks_job *job = w->job;
    desk *d = &w->desk[thread];
    float sum[AB_RANKS_BLOCK];
    int64_t first = index * job->stride * AB_RANKS_BLOCK, left = job->count - first;
    int64_t n = left < AB_RANKS_BLOCK ? left : AB_RANKS_BLOCK;
    for (int m = 0; m < job->micro_batches; m++) {
        float *sent = d->sent + (int64_t)m * AB_RANKS_BLOCK;
        for (int64_t i = 0; i < n; i++) sent[i] = job->value[m * job->count + first + i] * job->scale;
        ab_reduce_send(&job->reduction, job->ranks, sent, sent, n);
    }
    for (int64_t r = 0; r < job->ranks; r++) d->base[r] = d->sent + job->micro[r] * AB_RANKS_BLOCK;
    const ab_reduce_block block = {d->base, job->ranks, n, 0, sum, d->scratch};
    ab_reduce_range(&job->reduction, &block, job->position + first, job->bucket, d->row);
    ab_reduce_finish(&job->reduction, job->ranks, sum, n);
    for (int64_t i = 0; i < n; i++) judge(w, first + i, sum[i], &w->block[index]);
}

/* ---- all blocks ------------------------------------------------------------------------------ */

static ab_status make_desks(work *w, int threads) {
    const ab_ranks_job *job = w->job;
    int64_t scratch = ab_reduce_scratch(&job->reduction, job->ranks, AB_RANKS_BLOCK);
    for (int t = 0; t < threads; t++) {
        desk *d = &w->desk[t];
        d->sent = malloc((size_t)job->micro_batches * AB_RANKS_BLOCK * sizeof *d->sent);
        d->scratch = malloc((size_t)(scratch + 1) * sizeof *d->scratch);
        d->row = malloc((size_t)job->ranks * sizeof *d->row);
        d->base = malloc((size_t)job->ranks * sizeof *d->base);
        if (!d->sent || !d->scratch || !d->row || !d->base)
            return ab_fail(AB_NO_MEMORY, "out of memory for %lld ranks", (long long)job->ranks);
    }
    return AB_OK;
}

static void free_desks(desk *d, int threads) {
    for (int t = 0; d && t < threads; t++) {
        free(d[t].sent);
        free(d[t].scratch);
        free(d[t].row);
        free(d[t].base);
    }
    free(d);
}

ab_status ab_ranks_simulate(const ab_ranks_job *job, ab_ranks_sums *sums) {
    int threads = ab_parallel_threads();
    int64_t blocks = blocks_of(job->count, job->stride);
    int32_t *dealt = calloc((size_t)job->micro_batches, sizeof *dealt);
    work w = {job, calloc((size_t)threads, sizeof(desk)), calloc((size_t)blocks, sizeof *sums), dealt};
    *sums = (ab_ranks_sums){0};
    ab_status status = AB_OK;
    if (!w.desk || !w.block || !dealt)
        status = ab_fail(AB_NO_MEMORY, "out of memory for a reduction");
    else
        status = make_desks(&w, threads);
    if (status == AB_OK) {
        for (int64_t r = 0; r < job->ranks; r++) dealt[job->micro[r]]++;
        ab_parallel_for(blocks, simulate_block, &w);
        for (int64_t b = 0; b < blocks; b++) ab_ranks_sums_add(sums, &w.block[b]);
    }
    free_desks(w.desk, threads);
    free(w.block);
    free(dealt);
    return status;
}
