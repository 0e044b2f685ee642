/* dropout: zeroes each element with probability p and divides the others by 1 - p, in training only, as
 * torch.nn.Dropout.
 *
 * The mask is not stored: element i's random number is a pure function of (seed, step, op, i) (vec_math.h).
 * Backward recomputes it, and it is the same on every device and for every number of threads. torch stores
 * one byte per element. */
#include "kernels/ops/elementwise/unary_ops.h"

#include <math.h>

typedef struct dropout_attrs {
    double p;
} dropout_attrs;

static const ab_attr attrs_table[] = {
    {"p", AB_ATTR_FLOAT, offsetof(dropout_attrs, p), false, 0.5, 0, 1, "share of elements that become 0"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    char text[AB_SHAPE_TEXT];
    (void)attrs;
    (void)inputs;
    if (ab_shape_count(in) > (int64_t)1 << 34) /* the index of a block of four random numbers has 32 bits */
        return ab_fail(AB_CONFIG, "dropout: expected at most 2^34 elements, found %s",
                       ab_shape_text(in, text));
    *out = in[0];
    return AB_OK;
}

typedef struct mask_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *src;
    ab_dropout dropout;
} mask_job;

static void mask_block(void *argument, int64_t chunk, int thread) {
    const mask_job *job = argument;
    float buffer_in[AB_BLOCK], buffer_out[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *out = ab_target(job->dst, at, buffer_out);
    (void)thread;
    ab_vec_math_get()->dropout(out, ab_read(job->src, at, n, buffer_in), &job->dropout, at, n);
    ab_emit(job->exec, job->dst, at, out, n);
}

/* dst = src with the mask applied, or a copy of src outside training. */
static ab_status mask(const ab_exec *exec, const ab_op_io *io, ab_tensor *dst, const ab_tensor *src) {
    const dropout_attrs *a = io->attrs;
    if (!dst) return AB_OK;
    if (!exec->training || a->p == 0.0) {
        ab_cast(exec, dst, src);
        return AB_OK;
    }
    mask_job job = {exec, dst, src, {exec->seed, exec->step, io->instance, 0, 0.0f}};
    job.dropout.threshold = (uint32_t)ceil(a->p * 0x1p24); /* p = 1: above every random number */
    job.dropout.scale = a->p < 1.0 ? (float)(1.0 / (1.0 - a->p)) : 0.0f;
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), mask_block, &job);
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) { return mask(exec, io, io->out, io->in[0]); }
static ab_status backward(const ab_exec *exec, ab_op_io *io) { return mask(exec, io, io->din[0], io->dout); }

const ab_op ab_op_dropout = {.name = "dropout",
                             .inputs = 1,
                             .attrs_bytes = sizeof(dropout_attrs),
                             .attrs = attrs_table,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .flops = ab_unary_flops,
                             .describe = ab_describe_own};
