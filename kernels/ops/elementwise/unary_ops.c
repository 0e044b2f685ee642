/* Ops of the unary functions in unary.def: fp32 inside, one rounding. */
#include "kernels/ops/elementwise/unary_ops.h"

#include "kernels/ops/elementwise/vec_unary.h"
#include "kernels/vec/isa.h"

typedef struct scalar_attrs {
    double a, b;
} scalar_attrs;

#define attrs_none ((const ab_attr *)0)

static const ab_attr attrs_clamp[] = {
    {"min", AB_ATTR_FLOAT, offsetof(scalar_attrs, a), false, -(double)INFINITY, -(double)INFINITY,
     (double)INFINITY, "smaller values become this"},
    {"max", AB_ATTR_FLOAT, offsetof(scalar_attrs, b), false, (double)INFINITY, -(double)INFINITY,
     (double)INFINITY, "larger values become this"},
    {0}};

static const ab_attr attrs_scale[] = {{"factor", AB_ATTR_FLOAT, offsetof(scalar_attrs, a), true, 1, -1e300,
                                       1e300, "what values are multiplied by"},
                                      {0}};

enum { NEEDS_none = 0, NEEDS_in = 1, NEEDS_out = AB_NEEDS_OUT };

AB_BY_ISA(ab_vec_unary, ab_vec_unary)

typedef struct unary_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *of, *dout; /* of: input or result; NULL if the slope reads neither */
    const ab_unary_loops *loops;
    ab_scalars s;
} unary_job;

static void unary_block(void *argument, int64_t chunk, int thread) {
    const unary_job *job = argument;
    float buffer[AB_BLOCK], dout_buffer[AB_BLOCK], result_buffer[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *result = ab_target(job->dst, at, result_buffer);
    const float *dout = job->dout ? ab_read(job->dout, at, n, dout_buffer) : NULL;
    const float *of = job->of ? ab_read(job->of, at, n, buffer) : dout;
    (void)thread;
    if (dout)
        job->loops->slope(result, of, dout, job->s, n);
    else
        job->loops->value(result, of, job->s, n);
    ab_emit(job->exec, job->dst, at, result, n);
}

static ab_scalars scalars_of(const ab_op_io *io) {
    const scalar_attrs *a = io->attrs;
    return a ? (ab_scalars){(float)a->a, (float)a->b} : (ab_scalars){0, 0};
}

static void run(unary_job *job, const ab_op_io *io) {
    int64_t n = ab_tensor_count(job->dst);
    job->s = scalars_of(io);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), unary_block, job);
}

#define AB_UNARY(id, reads, attributes)                                                                      \
    static ab_status id##_forward(const ab_exec *exec, ab_op_io *io) {                                       \
        unary_job job = {.exec = exec, .dst = io->out, .of = io->in[0], .loops = &ab_vec_unary_get()->id};   \
        run(&job, io);                                                                                       \
        return AB_OK;                                                                                        \
    }                                                                                                        \
    static ab_status id##_backward(const ab_exec *exec, ab_op_io *io) {                                      \
        unary_job job = {.exec = exec,                                                                       \
                         .dst = io->din[0],                                                                  \
                         .of = NEEDS_##reads == NEEDS_in    ? io->in[0]                                      \
                               : NEEDS_##reads == NEEDS_out ? io->out                                        \
                                                            : NULL,                                          \
                         .dout = io->dout,                                                                   \
                         .loops = &ab_vec_unary_get()->id};                                                  \
        if (io->din[0]) run(&job, io);                                                                       \
        return AB_OK;                                                                                        \
    }                                                                                                        \
    const ab_op ab_op_##id = {.name = #id,                                                                   \
                              .inputs = 1,                                                                   \
                              .attrs_bytes = sizeof(scalar_attrs),                                           \
                              .attrs = attrs_##attributes,                                                   \
                              .infer = ab_unary_infer,                                                       \
                              .backward_needs = NEEDS_##reads,                                               \
                              .forward = id##_forward,                                                       \
                              .backward = id##_backward,                                                     \
                              .flops = ab_unary_flops,                                                       \
                              .describe = ab_describe_own};
#include "kernels/ops/elementwise/unary.def"
#undef AB_UNARY

/* Shape inference and cost of unary ops. */

ab_status ab_unary_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    *out = in[0];
    return AB_OK;
}

double ab_unary_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return 20.0 * (double)ab_shape_count(out);
}
