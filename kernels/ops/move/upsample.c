/* upsample: enlarges images by repeating each pixel, as torch.nn.Upsample(mode="nearest"). The gradient of a
 * pixel is the sum over its copies, in fp32, row by row. No interpolation. */
#include "kernels/ops/blocks.h"

#include <string.h>

typedef struct upsample_attrs {
    int64_t factor[2];
} upsample_attrs;

static const ab_attr attrs_table[] = {
    {"scale_factor", AB_ATTR_PAIR, offsetof(upsample_attrs, factor), true, 0, 1, 64, "copies of each pixel"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const upsample_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (in->ndim != 4)
        return ab_fail(AB_CONFIG, "upsample expects an image [batch, height, width, channels], found %s",
                       ab_shape_text(in, text));
    *out = *in;
    for (int i = 0; i < 2; i++) out->dim[1 + i] *= a->factor[i];
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_images_workspace(io->out, io->in[0], NULL);
    *state_bytes = 0;
    return AB_OK;
}

/* Sizes of both images. */
typedef struct sizes {
    int64_t height, width, channels, factor[2];
} sizes;

static sizes sizes_of(const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    const upsample_attrs *a = io->attrs;
    return (sizes){in->dim[1], in->dim[2], in->dim[3], {a->factor[0], a->factor[1]}};
}

static void repeat(const void *self, float *out, const float *in, const float *unused) {
    const sizes *s = self;
    int64_t row = s->width * s->factor[1] * s->channels;
    (void)unused;
    for (int64_t y = 0; y < s->height; y++) {
        float *first = out + y * s->factor[0] * row, *to = first;
        for (int64_t x = 0; x < s->width; x++, in += s->channels)
            for (int64_t i = 0; i < s->factor[1]; i++, to += s->channels)
                memcpy(to, in, (size_t)s->channels * sizeof *to);
        for (int64_t i = 1; i < s->factor[0]; i++)
            memcpy(first + i * row, first, (size_t)row * sizeof *first);
    }
}

static void add_copies(const void *self, float *din, const float *dout, const float *unused) {
    const sizes *s = self;
    (void)unused;
    memset(din, 0, (size_t)(s->height * s->width * s->channels) * sizeof *din);
    for (int64_t y = 0; y < s->height * s->factor[0]; y++) {
        float *to = din + y / s->factor[0] * s->width * s->channels;
        for (int64_t x = 0; x < s->width; x++, to += s->channels)
            for (int64_t i = 0; i < s->factor[1]; i++, dout += s->channels)
                for (int64_t c = 0; c < s->channels; c++) to[c] += dout[c];
    }
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    sizes s = sizes_of(io);
    ab_map_images(exec, io->out, repeat, &s, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    sizes s = sizes_of(io);
    if (io->din[0]) ab_map_images(exec, io->din[0], add_copies, &s, io->dout, NULL);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out); /* of the backward pass; forward only copies */
}

const ab_op ab_op_upsample = {.name = "upsample",
                              .inputs = 1,
                              .attrs_bytes = sizeof(upsample_attrs),
                              .attrs = attrs_table,
                              .infer = infer,
                              .prepare = prepare,
                              .forward = forward,
                              .backward = backward,
                              .flops = flops,
                              .describe = ab_describe_own};
