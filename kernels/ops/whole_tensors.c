/* Whole tensors read, stored and converted block by block. */
#include "kernels/ops/op.h"

#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

typedef struct whole_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *src;
    const float *values;
    float *scratch;
} whole_job;

static void emit_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    int64_t at = chunk * AB_WIDE_BLOCK;
    ab_emit(job->exec, job->dst, at, job->values + at,
            ab_min64(AB_WIDE_BLOCK, ab_tensor_count(job->dst) - at));
}

void ab_emit_all(const ab_exec *exec, ab_tensor *dst, const float *values) {
    whole_job job = {.exec = exec, .dst = dst, .values = values};
    int64_t n = ab_tensor_count(dst);
    if (values != dst->data) ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), emit_block, &job);
}

static void widen_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    int64_t at = chunk * AB_WIDE_BLOCK, n = ab_min64(AB_WIDE_BLOCK, ab_tensor_count(job->src) - at);
    ab_widen(job->scratch + at, ab_element(job->src, at), job->src->format, n);
}

const float *ab_view_f32(const ab_tensor *tensor, float *scratch) {
    if (ab_is_f32(tensor)) return tensor->data;
    whole_job job = {.src = tensor, .scratch = scratch};
    int64_t n = ab_tensor_count(tensor);
    ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), widen_block, &job);
    return scratch;
}

static void cast_block(void *argument, int64_t chunk, int thread) {
    const whole_job *job = argument;
    (void)thread;
    float buffer[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *values = ab_target(job->dst, at, buffer);
    ab_emit(job->exec, job->dst, at, ab_read(job->src, at, n, values), n);
}

void ab_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    whole_job job = {.exec = exec, .dst = dst, .src = src};
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), cast_block, &job);
}

/* ---- sums ------------------------------------------------------------------------------------ */

typedef struct sum_job {
    uint16_t *dst;
    const uint16_t *a, *b;
    const ab_format *format;
    int64_t n;
} sum_job;

static void sum_block(void *argument, int64_t chunk, int thread) {
    const sum_job *job = argument;
    const int64_t at = chunk * AB_WIDE_BLOCK, n = ab_min64(AB_WIDE_BLOCK, job->n - at);
    (void)thread;
    ab_add_halves(job->dst + at, job->format, job->a + at, job->b + at, n);
}

void ab_add(const ab_exec *exec, ab_tensor *dst, const ab_tensor *a, const ab_tensor *b) {
    const bool one_format = a->format == dst->format && b->format == dst->format;
    if (exec->observer || !one_format || !ab_is_half(dst->format)) {
        ab_map_tensors(exec, dst, ab_vec_ops_get()->add, a, b);
        return;
    }
    sum_job job = {dst->data, a->data, b->data, dst->format, ab_tensor_count(dst)};
    ab_for_chunks(job.n, ab_div_up(job.n, AB_WIDE_BLOCK), sum_block, &job);
}

void ab_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) { ab_add(exec, dst, dst, src); }
