/* flatten: {N, H, W, C} to {N, C*H*W} in torch's order (channels first), so torch's linear weights can be
 * used after it. Memory is NHWC, so values are transposed; {N, F} is passed through. */
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

typedef struct matrix {
    int64_t rows, columns;
} matrix;

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 4 && in->ndim != 2)
        return ab_fail(AB_CONFIG,
                       "flatten expects [batch, height, width, channels] or [batch, features], found %s",
                       ab_shape_text(in, text));
    *out = (ab_shape){.ndim = 2, .dim = {in->dim[0], ab_shape_count(in) / in->dim[0]}};
    return AB_OK;
}

/* With one channel or one pixel no value moves. */
static bool is_view(const void *attrs, const ab_shape *in) {
    int64_t channels = in->dim[in->ndim - 1], features = ab_shape_count(in) / in->dim[0];
    (void)attrs;
    return in->ndim == 2 || channels == 1 || channels == features;
}

static bool in_place(const ab_exec *exec, const ab_tensor *dst, const ab_tensor *src) {
    return dst->data == src->data && !exec->observer;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    size_t forward = ab_images_workspace(io->out, io->in[0], NULL);
    size_t backward = io->din[0] ? ab_images_workspace(io->din[0], io->dout, NULL) : 0;
    *workspace_bytes = forward > backward ? forward : backward;
    *state_bytes = 0;
    return AB_OK;
}

static void transpose_image(const void *self, float *out, const float *a, const float *b) {
    const matrix *m = self;
    (void)b;
    ab_vec_ops_get()->transpose(out, a, m->rows, m->columns);
}

static bool transpose_codes(const void *self, uint16_t infinity, uint16_t *out, const uint16_t *a,
                            const uint16_t *b) {
    const matrix *m = self;
    (void)infinity, (void)b;
    ab_vec_ops_get()->transpose_codes(out, a, m->rows, m->columns);
    return true;
}

/* Pixels and channels of the input; {N, F} is one pixel. */
static matrix pixels_by_channels(const ab_shape *in) {
    int64_t channels = in->dim[in->ndim - 1];
    return (matrix){.rows = ab_shape_count(in) / in->dim[0] / channels, .columns = channels};
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    matrix m = pixels_by_channels(&io->in[0]->shape);
    if (in_place(exec, io->out, io->in[0])) return AB_OK;
    ab_map_images_bits(exec, io->out, transpose_image, transpose_codes, &m, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0] || in_place(exec, io->din[0], io->dout)) return AB_OK;
    matrix m = pixels_by_channels(&io->din[0]->shape);
    matrix back = {.rows = m.columns, .columns = m.rows};
    ab_map_images_bits(exec, io->din[0], transpose_image, transpose_codes, &back, io->dout, NULL);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    (void)out;
    return 0.0;
}

const ab_op ab_op_flatten = {.name = "flatten",
                             .inputs = 1,
                             .is_view = is_view,
                             .infer = infer,
                             .prepare = prepare,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops,
                             .describe = ab_describe_own};
