/* conv2d: torch's 2D convolution (cross-correlation) with zero padding, on NHWC images; weights {out, in /
 * groups, kh, kw}. The bias is added in fp32 before the one rounding. */
#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/pass.h"
#include "kernels/ops/product/product.h"

#include <math.h>

typedef struct conv_attrs {
    int64_t out_channels, kernel[2], stride[2], padding[2], dilation[2], groups;
    bool bias;
} conv_attrs;

enum { MAX_CHANNELS = 1 << 20, MAX_KERNEL = 1024 };

static const ab_attr attrs_table[] = {
    {"out_channels", AB_ATTR_INT, offsetof(conv_attrs, out_channels), true, 0, 1, MAX_CHANNELS,
     "channels delivered"},
    {"kernel_size", AB_ATTR_PAIR, offsetof(conv_attrs, kernel), true, 0, 1, MAX_KERNEL, "kernel size"},
    {"stride", AB_ATTR_PAIR, offsetof(conv_attrs, stride), false, 1, 1, MAX_KERNEL, "step of the kernel"},
    {"padding", AB_ATTR_PAIR, offsetof(conv_attrs, padding), false, 0, 0, MAX_KERNEL,
     "zeros added on each side"},
    {"dilation", AB_ATTR_PAIR, offsetof(conv_attrs, dilation), false, 1, 1, MAX_KERNEL,
     "distance of kernel taps"},
    {"groups", AB_ATTR_INT, offsetof(conv_attrs, groups), false, 1, 1, MAX_CHANNELS,
     "independent blocks of input and output channels"},
    {"bias", AB_ATTR_BOOL, offsetof(conv_attrs, bias), false, 1, 0, 1,
     "one trained number added per output channel"},
    {0}};

static ab_conv geometry(const conv_attrs *a) {
    ab_conv conv = {.out_channels = a->out_channels, .groups = a->groups};
    for (int i = 0; i < 2; i++) {
        conv.window.kernel[i] = a->kernel[i];
        conv.window.stride[i] = a->stride[i];
        conv.window.padding[i] = a->padding[i];
        conv.window.dilation[i] = a->dilation[i];
    }
    return conv;
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const conv_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    ab_conv conv = geometry(a);
    (void)inputs;
    AB_TRY(ab_window_infer("conv2d", &conv.window, in, a->out_channels, out));
    if (in->dim[3] % a->groups != 0 || a->out_channels % a->groups != 0)
        return ab_fail(AB_CONFIG,
                       "conv2d: groups %lld must divide the channels of its input %s and out_channels %lld",
                       (long long)a->groups, ab_shape_text(in, text), (long long)a->out_channels);
    return AB_OK;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const conv_attrs *a = attrs;
    int64_t in_group = in->dim[3] / a->groups;
    double bound =
        1.0 / sqrt((double)(in_group * a->kernel[0] * a->kernel[1])); /* torch: Kaiming uniform, a = sqrt 5 */
    spec[0] = (ab_param_spec){"weight",
                              AB_PARAM_WEIGHT,
                              {.ndim = 4, .dim = {a->out_channels, in_group, a->kernel[0], a->kernel[1]}},
                              AB_INIT_UNIFORM,
                              bound};
    spec[1] = (ab_param_spec){
        "bias", AB_PARAM_WEIGHT, {.ndim = 1, .dim = {a->out_channels}}, AB_INIT_UNIFORM, bound};
    return a->bias ? 2 : 1;
}

static ab_status own(const ab_pass_spec *spec, ab_pass **pass) {
    AB_TRY(ab_narrow_pass(spec, pass));
    return *pass ? AB_OK : ab_direct_pass(spec, pass);
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    static const ab_product_kind kind = {
        .what = "conv2d", .own = own, .bf16 = ab_conv_bf16_pass, .library = ab_dnnl_conv_pass};
    ab_conv conv = geometry(io->attrs);
    ab_window_place(&conv.window, &io->in[0]->shape, &io->out->shape);
    conv.batch = io->in[0]->shape.dim[0];
    return ab_product_prepare(exec, io, &kind, &conv, workspace_bytes, state_bytes);
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    const conv_attrs *a = attrs;
    return 2.0 * (double)ab_shape_count(out) * (double)(in->dim[3] / a->groups * a->kernel[0] * a->kernel[1]);
}

const ab_op ab_op_conv2d = {.name = "conv2d",
                            .inputs = 1,
                            .attrs_bytes = sizeof(conv_attrs),
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
