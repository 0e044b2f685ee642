/* layer_norm over the last dimension (Ba, Kiros, Hinton 2016), as torch.nn.LayerNorm: biased variance, eps
 * inside the square root. */
#include "kernels/ops/norm/norm_rows.h"

typedef struct ln_attrs {
    int64_t normalized_shape;
    double eps;
    bool affine, bias;
} ln_attrs;

static const ab_attr attrs_table[] = {
    {"normalized_shape", AB_ATTR_INT, offsetof(ln_attrs, normalized_shape), false, 0, 1, 1 << 24,
     "size of the last dimension, if it is to be checked"},
    {"eps", AB_ATTR_FLOAT, offsetof(ln_attrs, eps), false, 1e-5, 0, 1, "added to the variance"},
    {"elementwise_affine", AB_ATTR_BOOL, offsetof(ln_attrs, affine), false, 1, 0, 1,
     "trained weight and bias"},
    {"bias", AB_ATTR_BOOL, offsetof(ln_attrs, bias), false, 1, 0, 1, "false: a weight alone"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_norm_rows_infer("layer_norm", ((const ln_attrs *)attrs)->normalized_shape, in, out);
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const ln_attrs *a = attrs;
    ab_shape shape = {.ndim = 1, .dim = {in->dim[in->ndim - 1]}};
    spec[0] = (ab_param_spec){"weight", AB_PARAM_WEIGHT, shape, AB_INIT_ONES, 0.0};
    spec[1] = (ab_param_spec){"bias", AB_PARAM_WEIGHT, shape, AB_INIT_ZEROS, 0.0};
    return !a->affine ? 0 : a->bias ? 2 : 1;
}

static int saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                 const ab_format **format) {
    (void)attrs;
    (void)out;
    for (int i = 0; i < 2; i++) {
        shape[i] = ab_norm_rows_statistic(in);
        format[i] = &ab_format_fp32;
    }
    return 2;
}

static ab_norm_rows norm_of(const ab_op_io *io) {
    return (ab_norm_rows){.centred = true,
                          .eps = ((const ln_attrs *)io->attrs)->eps,
                          .weight = io->param[0],
                          .bias = io->param[1],
                          .dweight = io->dparam[0],
                          .dbias = io->dparam[1],
                          .mean = io->saved[0],
                          .rstd = io->saved[1]};
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
    return 8.0 * (double)ab_shape_count(in); /* moments 4, normalisation 4 per value */
}

const ab_op ab_op_layer_norm = {.name = "layer_norm",
                                .norm = true,
                                .inputs = 1,
                                .mixes_formats = true,
                                .attrs_bytes = sizeof(ln_attrs),
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
