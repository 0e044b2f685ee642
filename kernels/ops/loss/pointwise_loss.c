/* mse, bce and bce_with_logits, as torch's mse_loss, binary_cross_entropy and
 * binary_cross_entropy_with_logits: the mean (or sum) of a formula over an input and a target of one shape.
 * The target may be computed, and then gets a gradient. `weight` multiplies the loss. */
#include "kernels/ops/loss/pointwise_loss.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/elementwise/operand_gradient.h"
#include "kernels/vec/isa.h"

typedef struct loss_attrs {
    int64_t reduction;
    double weight;
} loss_attrs;

enum { MEAN, SUM };

static const ab_attr attrs_table[] = {
    {"reduction", AB_ATTR_CHOICE, offsetof(loss_attrs, reduction), false, MEAN, MEAN, SUM, "mean|sum"},
    {"weight", AB_ATTR_FLOAT, offsetof(loss_attrs, weight), false, 1, -1e30, 1e30, "factor of the loss"},
    {0}};

AB_BY_ISA(ab_vec_pointwise, ab_vec_pointwise)

static ab_status infer_named(const char *name, const ab_shape *in, ab_shape *out) {
    char x[AB_SHAPE_TEXT], t[AB_SHAPE_TEXT];
    if (!ab_shape_equal(&in[0], &in[1]))
        return ab_fail(AB_CONFIG, "%s expects an input and a target of one shape, found %s and %s", name,
                       ab_shape_text(&in[0], x), ab_shape_text(&in[1], t));
    *out = (ab_shape){.ndim = 1, .dim = {1}};
    return AB_OK;
}

static ab_reduction over_all(const ab_op_io *io) {
    return ab_reduction_of(&io->in[0]->shape, (1u << io->in[0]->shape.ndim) - 1u);
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    ab_reduction r = over_all(io);
    (void)exec;
    *workspace_bytes = ab_reduction_bytes(&r);
    *state_bytes = 0;
    return AB_OK;
}

typedef struct loss_job {
    const ab_tensor *x, *t;
    ab_loss_loop f;
    float factor;
} loss_job;

static double factor_of(const ab_op_io *io) {
    const loss_attrs *a = io->attrs;
    return a->reduction == SUM ? a->weight : a->weight / (double)ab_tensor_count(io->in[0]);
}

static const float *read_losses(const void *self, int64_t at, int64_t n, float *buffer) {
    const loss_job *job = self;
    float x[AB_REDUCE_RUN], t[AB_REDUCE_RUN];
    job->f(buffer, ab_read(job->x, at, n, x), ab_read(job->t, at, n, t), n);
    return buffer;
}

static ab_status forward_of(const ab_exec *exec, ab_op_io *io, const ab_loss_loops *f) {
    ab_reduction r = over_all(io);
    loss_job job = {.x = io->in[0], .t = io->in[1], .f = f->value};
    float loss;
    ab_reduce_sum(&r, read_losses, &job, factor_of(io), exec->workspace, &loss);
    ab_emit(exec, io->out, 0, &loss, 1);
    return AB_OK;
}

static const float *read_gradient(const void *self, int64_t at, int64_t n, float *buffer) {
    const loss_job *job = self;
    read_losses(job, at, n, buffer);
    for (int64_t i = 0; i < n; i++) buffer[i] *= job->factor;
    return buffer;
}

static ab_status backward_of(const ab_exec *exec, ab_op_io *io, const ab_loss_loops *f) {
    float buffer, dout = *ab_read(io->dout, 0, 1, &buffer);
    for (int i = 0; i < 2; i++) {
        const loss_job job = {io->in[0], io->in[1], f->by[i], (float)((double)dout * factor_of(io))};
        if (io->din[i]) ab_operand_gradient(exec, io->din[i], &io->in[0]->shape, read_gradient, &job);
    }
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 4.0 * (double)ab_shape_count(&in[0]);
}

/* ---- best constant prediction: one number for each element of a sample ----------------------- */

static int64_t of_a_sample(const ab_op_io *io) {
    return ab_tensor_count(io->in[0]) / io->in[0]->shape.dim[0];
}

/* The sums of targets, and the number of samples. */
static int64_t constant_sums(const ab_op_io *io) { return of_a_sample(io) + 1; }

static void constant_add(const ab_op_io *io, const void *targets, double *sums) {
    const int64_t each = of_a_sample(io), samples = io->in[0]->shape.dim[0];
    const float *t = targets;
    for (int64_t n = 0; n < samples; n++)
        for (int64_t i = 0; i < each; i++) sums[i] += (double)t[n * each + i];
    sums[each] += (double)samples;
}

static void predict_with(float (*constant)(float mean), const ab_op_io *io, const double *sums,
                         float *prediction) {
    const int64_t each = of_a_sample(io), count = ab_tensor_count(io->in[0]);
    for (int64_t i = 0; i < each; i++) prediction[i] = constant((float)(sums[i] / sums[each]));
    for (int64_t i = each; i < count; i++) prediction[i] = prediction[i - each];
}

#define AB_POINTWISE(id)                                                                                     \
    static ab_status id##_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {          \
        (void)attrs;                                                                                         \
        (void)inputs;                                                                                        \
        return infer_named(#id, in, out);                                                                    \
    }                                                                                                        \
    static ab_status id##_forward(const ab_exec *exec, ab_op_io *io) {                                       \
        return forward_of(exec, io, &ab_vec_pointwise_get()->id);                                            \
    }                                                                                                        \
    static ab_status id##_backward(const ab_exec *exec, ab_op_io *io) {                                      \
        return backward_of(exec, io, &ab_vec_pointwise_get()->id);                                           \
    }                                                                                                        \
    static void id##_predict(const ab_op_io *io, const double *sums, float *prediction) {                    \
        predict_with(ab_##id##_constant, io, sums, prediction);                                              \
    }                                                                                                        \
    static const ab_best_constant id##_best = {constant_sums, constant_add, id##_predict};                   \
    const ab_op ab_op_##id = {.name = #id,                                                                   \
                              .inputs = 2,                                                                   \
                              .is_loss = true,                                                               \
                              .attrs_bytes = sizeof(loss_attrs),                                             \
                              .attrs = attrs_table,                                                          \
                              .infer = id##_infer,                                                           \
                              .backward_needs = 1u << 0 | 1u << 1,                                           \
                              .prepare = prepare,                                                            \
                              .forward = id##_forward,                                                       \
                              .backward = id##_backward,                                                     \
                              .flops = flops,                                                                \
                              .describe = ab_describe_own,                                                   \
                              .best_constant = &id##_best};
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE
