/* relu: max(x, 0), NaN propagates, as torch.relu. Backward reads the output, so the input may be freed. */
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    *out = in[0];
    return AB_OK;
}

/* Unobserved two-byte tensors of one format are processed without widening. */
typedef void (*bits_map)(uint16_t *out, const uint16_t *a, const uint16_t *b, uint16_t infinity, int64_t n);

typedef struct bits_job {
    bits_map f;
    ab_tensor *dst;
    const ab_tensor *a, *b;
    uint16_t infinity;
} bits_job;

static void bits_block(void *argument, int64_t chunk, int thread) {
    const bits_job *job = argument;
    (void)thread;
    int64_t at = chunk * AB_WIDE_BLOCK, n = ab_min64(AB_WIDE_BLOCK, ab_tensor_count(job->dst) - at);
    const uint16_t *a = job->a->data, *b = job->b->data;
    job->f((uint16_t *)job->dst->data + at, a + at, b + at, job->infinity, n);
}

/* b may alias a. */
static bool map_bits(const ab_exec *exec, bits_map f, ab_tensor *dst, const ab_tensor *a,
                     const ab_tensor *b) {
    const ab_format *format = dst->format;
    if (exec->observer || format->storage_bytes != 2 || a->format != format || b->format != format)
        return false;
    unsigned mantissa = (1u << (format->precision - 1)) - 1u;
    bits_job job = {.f = f, .dst = dst, .a = a, .b = b, .infinity = (uint16_t)(0x7fffu & ~mantissa)};
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_WIDE_BLOCK), bits_block, &job);
    return true;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    const ab_vec_ops *vec = ab_vec_ops_get();
    if (!map_bits(exec, vec->relu_bits, io->out, io->in[0], io->in[0]))
        ab_map_tensors(exec, io->out, vec->relu, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    const ab_vec_ops *vec = ab_vec_ops_get();
    if (io->din[0] && !map_bits(exec, vec->relu_backward_bits, io->din[0], io->out, io->dout))
        ab_map_tensors(exec, io->din[0], vec->relu_backward, io->out, io->dout);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out);
}

const ab_op ab_op_relu = {.name = "relu",
                          .inputs = 1,
                          .infer = infer,
                          .backward_needs = AB_NEEDS_OUT,
                          .forward = forward,
                          .backward = backward,
                          .flops = flops,
                          .describe = ab_describe_own};
