/* Gradients of operands: copied per block, or summed over broadcast dimensions. */
#include "kernels/ops/elementwise/operand_gradient.h"

#include "kernels/ops/blocks.h"
#include "kernels/ops/views.h"

typedef struct gradient_job {
    const ab_exec *exec;
    ab_tensor *dst;
    ab_reduce_source source;
    const void *self;
} gradient_job;

static void gradient_block(void *argument, int64_t chunk, int thread) {
    const gradient_job *job = argument;
    float buffer[AB_REDUCE_RUN];
    (void)thread;
    int64_t at = chunk * AB_REDUCE_RUN, n = ab_min64(AB_REDUCE_RUN, ab_tensor_count(job->dst) - at);
    ab_emit(job->exec, job->dst, at, job->source(job->self, at, n, buffer), n);
}

static void summed_gradient(const gradient_job *job, const ab_shape *of, unsigned axes) {
    ab_reduction r = ab_reduction_of(of, axes);
    char *scratch = job->exec->workspace;
    float *sums = ab_is_f32(job->dst) ? job->dst->data : (float *)(void *)(scratch + ab_reduction_bytes(&r));
    ab_reduce_sum(&r, job->source, job->self, 1.0, scratch, sums);
    ab_emit_all(job->exec, job->dst, sums);
}

void ab_operand_gradient(const ab_exec *exec, ab_tensor *dst, const ab_shape *of, ab_reduce_source source,
                         const void *self) {
    gradient_job job = {exec, dst, source, self};
    const unsigned axes = ab_broadcast_axes(&dst->shape, of);
    const int64_t n = ab_tensor_count(dst);
    if (axes)
        summed_gradient(&job, of, axes);
    else
        ab_for_chunks(n, ab_div_up(n, AB_REDUCE_RUN), gradient_block, &job);
}

size_t ab_operand_gradients_bytes(const ab_op_io *io, int inputs) {
    size_t most = 0;
    for (int i = 0; i < inputs; i++) {
        if (!io->din[i]) continue;
        const unsigned axes = ab_broadcast_axes(&io->din[i]->shape, &io->out->shape);
        const ab_reduction r = ab_reduction_of(&io->out->shape, axes);
        const size_t bytes = axes ? ab_reduction_bytes(&r) + ab_floats_bytes(r.kept) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}
