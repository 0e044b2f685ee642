/* Clipping: partial norms over a partition that depends only on the size, then one pass over every
 * gradient. */
#include "bench/train/optim/clip.h"

#include "kernels/backend/backend.h"
#include "kernels/core/parallel.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = 4096, PARTS = 64 };

static char *element(const ab_tensor *tensor, int64_t i) {
    return (char *)tensor->data + ab_format_bytes(tensor->format, i);
}

typedef struct clip_job {
    const ab_tensor *tensor;
    int64_t blocks; /* per part */
    double part[PARTS];
    float factor, limit; /* limit: inf if off */
} clip_job;

static int64_t block_size(const clip_job *job, int64_t first) {
    int64_t left = ab_tensor_count(job->tensor) - first;
    return left < BLOCK ? left : BLOCK;
}

static void square_part(void *argument, int64_t part, int thread) {
    clip_job *job = argument;
    float values[BLOCK];
    int64_t first = part * job->blocks * BLOCK, count = ab_tensor_count(job->tensor);
    double sum = 0;
    (void)thread;
    for (int64_t b = 0; b < job->blocks && first < count; b++, first += BLOCK) {
        int64_t n = block_size(job, first);
        ab_widen(values, element(job->tensor, first), job->tensor->format, n);
        for (int64_t i = 0; i < n; i++) sum += (double)values[i] * (double)values[i];
    }
    job->part[part] = sum;
}

static void limit_part(void *argument, int64_t part, int thread) {
    clip_job *job = argument;
    float values[BLOCK];
    int64_t first = part * job->blocks * BLOCK, count = ab_tensor_count(job->tensor);
    (void)thread;
    for (int64_t b = 0; b < job->blocks && first < count; b++, first += BLOCK) {
        int64_t n = block_size(job, first);
        ab_widen(values, element(job->tensor, first), job->tensor->format, n);
        for (int64_t i = 0; i < n; i++) {
            float v = values[i] * job->factor;
            values[i] = v < -job->limit ? -job->limit : v > job->limit ? job->limit : v;
        }
        ab_narrow(element(job->tensor, first), job->tensor->format, values, n);
    }
}

static clip_job job_of(const ab_tensor *tensor) {
    int64_t blocks = (ab_tensor_count(tensor) + BLOCK - 1) / BLOCK;
    return (clip_job){.tensor = tensor, .blocks = (blocks + PARTS - 1) / PARTS};
}

/* Rounds a double to `format`. */
static double rounded(double value, const ab_format *format) {
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    return ab_format_round(format, &nearest, value);
}

/* `format`: of the norm; NULL: that of the gradient. */
static double norm_of(const ab_tensor *grad, const ab_format *format) {
    clip_job job = job_of(grad);
    ab_parallel_for(PARTS, square_part, &job);
    double sum = 0;
    for (int i = 0; i < PARTS; i++) sum += job.part[i];
    return rounded(sqrt(sum), format ? format : grad->format);
}

static void limit(const ab_tensor *grad, float factor, float bound) {
    clip_job job = job_of(grad);
    job.factor = factor;
    job.limit = bound;
    ab_parallel_for(PARTS, limit_part, &job);
}

/* ---- other devices --------------------------------------------------------------------------- */

static bool on_host(const ab_tensor *tensor) { return ab_backend_of(tensor->device)->host_memory; }

/* Copies a device gradient to the host in the same format; a host gradient is used directly. */
static ab_status copy_to_host(ab_tensor *grad, ab_tensor *here) {
    *here = *grad;
    if (on_host(grad)) return AB_OK;
    here->device = &ab_device_cpu;
    here->data = malloc(ab_format_bytes(grad->format, ab_tensor_count(grad)));
    if (!here->data) return ab_fail(AB_NO_MEMORY, "clipping gradients: out of memory");
    return ab_tensor_download(grad, here->data);
}

static ab_status put_back(ab_tensor *grad, ab_tensor *here, bool changed) {
    ab_status status = AB_OK;
    if (on_host(grad)) return status;
    if (changed) status = ab_tensor_upload(grad, here->data);
    free(here->data);
    return status;
}

/* ---- interface ------------------------------------------------------------------------------- */

/* fp32 if any gradient is fp32. */
static const ab_format *common_format(ab_tensor *const *grad, int count) {
    for (int i = 1; i < count; i++)
        if (grad[i]->format != grad[0]->format) return &ab_format_fp32;
    return count > 0 ? grad[0]->format : &ab_format_fp32;
}

ab_status ab_clip_total_norm(ab_tensor *const *grad, int count, const ab_format *format, double *total) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        ab_tensor here;
        AB_TRY(copy_to_host(grad[i], &here));
        double norm = norm_of(&here, format);
        AB_TRY(put_back(grad[i], &here, false));
        sum += norm * norm;
    }
    *total = rounded(sqrt(sum), format ? format : common_format(grad, count));
    return AB_OK;
}

/* By the device that holds the gradients; AB_UNAVAILABLE: on the host. */
static ab_status clip_there(const ab_clip_config *config, ab_tensor *const *grad, int count, double *total) {
    const ab_reductions *own = count > 0 ? ab_backend_of(grad[0]->device)->reductions : NULL;
    if (!own || config->format) return AB_UNAVAILABLE;
    return own->clip(grad, count, config->norm, config->value, total);
}

ab_status ab_clip(const ab_clip_config *config, ab_tensor *const *grad, int count, double *total) {
    double factor = 1;
    *total = 0;
    if (config->norm <= 0 && config->value <= 0) return AB_OK;
    const ab_status there = clip_there(config, grad, count, total);
    if (there != AB_UNAVAILABLE) return there;
    *total = 0;
    if (config->norm > 0) {
        const ab_format *format = config->format ? config->format : common_format(grad, count);
        AB_TRY(ab_clip_total_norm(grad, count, config->format, total));
        factor = rounded(config->norm / rounded(*total + 1e-6, format), format);
        if (factor > 1) factor = 1; /* NaN stays */
    }
    for (int i = 0; i < count; i++) {
        ab_tensor here;
        AB_TRY(copy_to_host(grad[i], &here));
        limit(&here, (float)factor, config->value > 0 ? (float)config->value : INFINITY);
        AB_TRY(put_back(grad[i], &here, true));
    }
    return AB_OK;
}
