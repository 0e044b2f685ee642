/* The running average of one parameter's weights. */
#include "bench/train/optim/ema.h"

#include "kernels/backend/fallback.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

enum { BLOCK = 4096 };

typedef struct ema_job {
    ab_tensor *average;
    const ab_tensor *weight;
    float fresh;
} ema_job;

static char *element(const ab_tensor *tensor, int64_t i) {
    return (char *)tensor->data + ab_format_bytes(tensor->format, i);
}

static void average_block(void *argument, int64_t block, int thread) {
    const ema_job *job = argument;
    float average[BLOCK], weight[BLOCK];
    int64_t first = block * BLOCK, left = ab_tensor_count(job->average) - first,
            n = left < BLOCK ? left : BLOCK;
    (void)thread;
    ab_widen(average, element(job->average, first), job->average->format, n);
    ab_widen(weight, element(job->weight, first), job->weight->format, n);
    for (int64_t i = 0; i < n; i++)
        average[i] = job->fresh == 1.0f ? weight[i] : average[i] + job->fresh * (weight[i] - average[i]);
    ab_narrow(element(job->average, first), job->average->format, average, n);
}

static void update(ema_job *job) {
    ab_parallel_for((ab_tensor_count(job->average) + BLOCK - 1) / BLOCK, average_block, job);
}

static ab_status update_copies(ab_tensor *average, const ab_tensor *weight, float fresh) {
    ab_status status = AB_OK;
    ab_tensor here = {.data = NULL}, read = {.data = NULL};
    ema_job job = {&here, &read, fresh};
    AB_TRY_GOTO(ab_host_copy(average, &here));
    AB_TRY_GOTO(ab_host_copy(weight, &read));
    update(&job);
    AB_TRY_GOTO(ab_tensor_upload(average, here.data));
out:
    ab_host_copy_free(&here);
    ab_host_copy_free(&read);
    return status;
}

ab_status ab_ema_update(ab_tensor *average, const ab_tensor *weight, double decay, int64_t updates) {
    const float fresh = updates == 0 ? 1.0f : (float)(1.0 - decay);
    ema_job job = {average, weight, fresh};
    if (!ab_backend_of(average->device)->host_memory) return update_copies(average, weight, fresh);
    update(&job);
    return AB_OK;
}
