/* linear: out = in W^T + bias over the last dimension, as torch.nn.Linear; weights {out_features,
 * in_features}. Inputs are {N, F} or {N, T, F}; images must be flattened first. */
#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/product.h"

#include <math.h>

typedef struct linear_attrs {
    int64_t out_features;
    bool bias;
} linear_attrs;

enum { MAX_FEATURES = 1 << 24 };

static const ab_attr attrs_table[] = {{"out_features", AB_ATTR_INT, offsetof(linear_attrs, out_features),
                                       true, 0, 1, MAX_FEATURES, "features delivered"},
                                      {"bias", AB_ATTR_BOOL, offsetof(linear_attrs, bias), false, 1, 0, 1,
                                       "one trained number added per output feature"},
                                      {0}};

static int64_t features(const ab_shape *shape) { return shape->dim[shape->ndim - 1]; }

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const linear_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (in->ndim != 2 && in->ndim != 3)
        return ab_fail(AB_CONFIG, "linear expects features [batch, features], found %s%s",
                       ab_shape_text(in, text), in->ndim == 4 ? "; put a flatten before it" : "");
    *out = *in;
    out->dim[in->ndim - 1] = a->out_features;
    if (!ab_shape_check(out))
        return ab_fail(AB_CONFIG, "linear: output %s has too many elements", ab_shape_text(out, text));
    return AB_OK;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const linear_attrs *a = attrs;
    double bound = 1.0 / sqrt((double)features(in)); /* torch: Kaiming uniform, a = sqrt 5 */
    spec[0] = (ab_param_spec){"weight",
                              AB_PARAM_WEIGHT,
                              {.ndim = 2, .dim = {a->out_features, features(in)}},
                              AB_INIT_UNIFORM,
                              bound};
    spec[1] = (ab_param_spec){
        "bias", AB_PARAM_WEIGHT, {.ndim = 1, .dim = {a->out_features}}, AB_INIT_UNIFORM, bound};
    return a->bias ? 2 : 1;
}

static ab_status own_pass(const ab_pass_spec *spec, ab_pass **pass) {
    AB_TRY(ab_few_rows_pass(spec, pass));
    return *pass ? AB_OK : ab_blocked_pass(spec, pass);
}

static ab_status bf16_pass(const ab_pass_spec *spec, ab_pass **pass) {
    AB_TRY(ab_few_rows_bf16_pass(spec, pass));
    return *pass ? AB_OK : ab_blocked_bf16_pass(spec, pass);
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    static const ab_product_kind kind = {
        .what = "linear", .own = own_pass, .bf16 = bf16_pass, .library = ab_dnnl_matmul_pass};
    const linear_attrs *a = io->attrs;
    const ab_shape *in = &io->in[0]->shape;
    const ab_conv conv = ab_conv_of_linear(ab_shape_count(in) / features(in), features(in), a->out_features);
    return ab_product_prepare(exec, io, &kind, &conv, workspace_bytes, state_bytes);
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    return 2.0 * (double)ab_shape_count(out) * (double)features(in);
}

const ab_op ab_op_linear = {.name = "linear",
                            .inputs = 1,
                            .attrs_bytes = sizeof(linear_attrs),
                            .attrs = attrs_table,
                            .infer = infer,
                            .params = params,
                            .backward_needs = 1u << 0,
                            .prepare = prepare,
                            .bind = ab_product_bind,
                            .release = ab_product_release,
                            .forward = ab_product_forward,
                            .backward = ab_product_backward,
                            .flops = flops,
                            .describe = ab_product_describe};
