/* rms_norm over the last dimension (Zhang and Sennrich 2019), as torch.nn.RMSNorm: x / sqrt(mean of x^2 +
 * eps) * weight. eps defaults to fp32's machine epsilon for every format, as in torch. */
#include "kernels/ops/norm/norm_rows.h"

typedef struct rms_attrs {
    int64_t normalized_shape;
    double eps;
    bool affine;
} rms_attrs;

static const ab_attr attrs_table[] = {
    {"normalized_shape", AB_ATTR_INT, offsetof(rms_attrs, normalized_shape), false, 0, 1, 1 << 24,
     "size of the last dimension, if it is to be checked"},
    {"eps", AB_ATTR_FLOAT, offsetof(rms_attrs, eps), false, 0x1p-23, 0, 1,
     "added to the mean of the squares"},
    {"elementwise_affine", AB_ATTR_BOOL, offsetof(rms_attrs, affine), false, 1, 0, 1, "trained weight"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_norm_rows_infer("rms_norm", ((const rms_attrs *)attrs)->normalized_shape, in, out);
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const rms_attrs *a = attrs;
    spec[0] = (ab_param_spec){
        "weight", AB_PARAM_WEIGHT, {.ndim = 1, .dim = {in->dim[in->ndim - 1]}}, AB_INIT_ONES, 0.0};
    return a->affine ? 1 : 0;
}

static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)attrs;
    (void)out;
    shape[0] = ab_norm_rows_statistic(in);
    format[0] = &ab_format_fp32;
    return 1;
}

static ab_norm_rows norm_of(const ab_op_io *io) {
    return (ab_norm_rows){.eps = ((const rms_attrs *)io->attrs)->eps,
                          .weight = io->param[0],
                          .dweight = io->dparam[0],
                          .rstd = io->saved[0]};
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = norm_of(io);
    ab_norm_rows_forward(exec, io, &norm);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = norm_of(io);
    ab_norm_rows_backward(exec, io, &norm);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 5.0 * (double)ab_shape_count(in);
}

const ab_op ab_op_rms_norm = {.name = "rms_norm",
                              .norm = true,
                              .inputs = 1,
                              .attrs_bytes = sizeof(rms_attrs),
                              .attrs = attrs_table,
                              .infer = infer,
                              .params = params,
                              .saved = saved,
                              .backward_needs = 1u << 0,
                              .prepare = ab_norm_rows_prepare,
                              .forward = forward,
                              .backward = backward,
                              .flops = flops,
                              .describe = ab_describe_own};
