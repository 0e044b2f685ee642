/* apex.normalization's FusedLayerNorm, MixedFusedLayerNorm, FusedRMSNorm and MixedFusedRMSNorm, over the last
 * dimension. Statistics are fp32 in every format; after the normalisation apex computes in the output's
 * format (norm_rows.h). The fused norms take parameters of the input's format only; the mixed ones take any
 * and have the output in the format of the weight. memory_efficient keeps the output for backward, not the
 * input, and divides by the weight. */
#include "kernels/ops/norm/norm_rows.h"

typedef struct fused_attrs {
    int64_t normalized_shape;
    double eps;
    bool memory_efficient, affine;
} fused_attrs;

#define SHARED_ATTRS                                                                                         \
    {"normalized_shape",                                                                                     \
     AB_ATTR_INT,                                                                                            \
     offsetof(fused_attrs, normalized_shape),                                                                \
     false,                                                                                                  \
     0,                                                                                                      \
     1,                                                                                                      \
     1 << 24,                                                                                                \
     "size of the last dimension, if it is to be checked"},                                                  \
        {"eps",                                                                                              \
         AB_ATTR_FLOAT,                                                                                      \
         offsetof(fused_attrs, eps),                                                                         \
         false,                                                                                              \
         1e-5,                                                                                               \
         0,                                                                                                  \
         1,                                                                                                  \
         "added to the variance or mean of the squares; the least weight that backward divides by"},         \
    {                                                                                                        \
        "memory_efficient", AB_ATTR_BOOL, offsetof(fused_attrs, memory_efficient), false, 0, 0, 1,           \
            "keep the output for backward in place of the input"                                             \
    }

static const ab_attr fused_table[] = {SHARED_ATTRS,
                                      {"elementwise_affine", AB_ATTR_BOOL, offsetof(fused_attrs, affine),
                                       false, 1, 0, 1, "trained weight, and bias if it has one"},
                                      {0}};
static const ab_attr mixed_table[] = {SHARED_ATTRS, {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_norm_rows_infer("fused norm", ((const fused_attrs *)attrs)->normalized_shape, in, out);
}

/* Weight and bias; centred norms alone have a bias. */
static int both(const ab_shape *in, ab_param_spec *spec) {
    ab_shape shape = {.ndim = 1, .dim = {in->dim[in->ndim - 1]}};
    spec[0] = (ab_param_spec){"weight", AB_PARAM_WEIGHT, shape, AB_INIT_ONES, 0.0};
    spec[1] = (ab_param_spec){"bias", AB_PARAM_WEIGHT, shape, AB_INIT_ZEROS, 0.0};
    return 2;
}

static int mixed_layer_params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    (void)attrs;
    return both(in, spec);
}

static int mixed_rms_params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    (void)attrs;
    return both(in, spec) - 1;
}

static int layer_params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    return ((const fused_attrs *)attrs)->affine ? both(in, spec) : 0;
}

static int rms_params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    return ((const fused_attrs *)attrs)->affine ? both(in, spec) - 1 : 0;
}

/* The reciprocal deviation, and the mean where backward reads the input of a centred norm. */
static int saved_statistics(const ab_shape *in, int count, ab_shape *shape, const ab_format **format) {
    for (int i = 0; i < count; i++) {
        shape[i] = ab_norm_rows_statistic(in);
        format[i] = &ab_format_fp32;
    }
    return count;
}

static int layer_saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                       const ab_format **format) {
    (void)out;
    return saved_statistics(in, ((const fused_attrs *)attrs)->memory_efficient ? 1 : 2, shape, format);
}

static int rms_saved(const void *attrs, const ab_shape *in, const ab_shape *out, ab_shape *shape,
                     const ab_format **format) {
    (void)attrs;
    (void)out;
    return saved_statistics(in, 1, shape, format);
}

static unsigned needs(const void *attrs, int inputs, unsigned wanted) {
    (void)inputs;
    (void)wanted;
    return ((const fused_attrs *)attrs)->memory_efficient ? (unsigned)AB_NEEDS_OUT : 1u << 0;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static ab_norm_rows norm_of(const ab_op_io *io, bool centred) {
    const fused_attrs *a = io->attrs;
    return (ab_norm_rows){.centred = centred,
                          .fused = true,
                          .from_output = a->memory_efficient,
                          .eps = a->eps,
                          .weight = io->param[0],
                          .bias = io->param[1],
                          .dweight = io->dparam[0],
                          .dbias = io->dparam[1],
                          .rstd = io->saved[0]};
}

static ab_norm_rows layer_of(const ab_op_io *io) {
    ab_norm_rows norm = norm_of(io, true);
    if (norm.from_output) return norm;
    norm.mean = io->saved[0];
    norm.rstd = io->saved[1];
    return norm;
}

static ab_status layer_forward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = layer_of(io);
    ab_norm_rows_forward(exec, io, &norm);
    return AB_OK;
}

static ab_status layer_backward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = layer_of(io);
    ab_norm_rows_backward(exec, io, &norm);
    return AB_OK;
}

static ab_status rms_forward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = norm_of(io, false);
    ab_norm_rows_forward(exec, io, &norm);
    return AB_OK;
}

static ab_status rms_backward(const ab_exec *exec, ab_op_io *io) {
    ab_norm_rows norm = norm_of(io, false);
    ab_norm_rows_backward(exec, io, &norm);
    return AB_OK;
}

static double layer_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 8.0 * (double)ab_shape_count(in); /* as layer_norm */
}

static double rms_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 5.0 * (double)ab_shape_count(in); /* as rms_norm */
}

/* ---- the ops --------------------------------------------------------------------------------- */

#define COMMON                                                                                               \
    .norm = true, .inputs = 1, .attrs_bytes = sizeof(fused_attrs), .infer = infer, .needs = needs,           \
    .backward_needs = 1u << 0 | AB_NEEDS_OUT, .prepare = ab_norm_rows_prepare, .describe = ab_describe_own
#define LAYER .saved = layer_saved, .forward = layer_forward, .backward = layer_backward, .flops = layer_flops
#define RMS .saved = rms_saved, .forward = rms_forward, .backward = rms_backward, .flops = rms_flops

const ab_op ab_op_fused_layer_norm = {.name = "fused_layer_norm",
                                      .attrs = fused_table,
                                      .params = layer_params,
                                      .mixed_twin = "mixed_fused_layer_norm",
                                      COMMON,
                                      LAYER};
const ab_op ab_op_fused_rms_norm = {.name = "fused_rms_norm",
                                    .attrs = fused_table,
                                    .params = rms_params,
                                    .mixed_twin = "mixed_fused_rms_norm",
                                    COMMON,
                                    RMS};
const ab_op ab_op_mixed_fused_layer_norm = {.name = "mixed_fused_layer_norm",
                                            .attrs = mixed_table,
                                            .params = mixed_layer_params,
                                            .out_as_weight = true,
                                            COMMON,
                                            LAYER};
const ab_op ab_op_mixed_fused_rms_norm = {.name = "mixed_fused_rms_norm",
                                          .attrs = mixed_table,
                                          .params = mixed_rms_params,
                                          .out_as_weight = true,
                                          COMMON,
                                          RMS};
