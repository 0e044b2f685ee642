/* Narrow convolutions, one image at a time; see pass.h. Each thread works on a zero-padded copy of its
 * image. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/format/halves.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/image_pieces.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_conv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weight gradients are summed in at most this many blocks of images, then over the blocks in order. */
enum { MAX_IMAGE_BLOCKS = 16 };

typedef struct narrow {
    ab_pass base;
    ab_conv conv;
    int threads;
    int64_t padded_width, padded_height; /* of the padded image */
    int64_t phase_width;                 /* forward: columns of one phase of a padded row */
    int64_t *offset;                     /* forward: offset of each tap in a planar image; owned */
    ab_image_pieces pieces;              /* a thread's own memory: an image copy */
    int64_t blocks;                      /* backward weights */
    size_t block_bytes;
} narrow;

static int64_t taps_of(const ab_conv *conv) { return conv->window.kernel[0] * conv->window.kernel[1]; }

/* ---- weights --------------------------------------------------------------------------------- */

/* Packed: [kernel row][kernel column][input channel][8 output channels, zero-padded]. */
static ab_status pack_forward(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const ab_conv *conv = &((const narrow *)base)->conv;
    int64_t in = conv->window.channels, taps = taps_of(conv);
    const float *from = weights;
    float *to = packed;
    (void)scratch;
    memset(to, 0, base->packed_bytes);
    for (int64_t o = 0; o < conv->out_channels; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t tap = 0; tap < taps; tap++)
                to[(tap * in + i) * AB_NARROW + o] = from[(o * in + i) * taps + tap];
    return AB_OK;
}

/* Packed: [kernel row][chunk of kernel columns][output channel][column of the chunk][8 input channels,
 * zero-padded]. */
static ab_status pack_backward(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const ab_conv *conv = &((const narrow *)base)->conv;
    const ab_window *w = &conv->window;
    int64_t in = w->channels, out = conv->out_channels, columns;
    const float *from = weights;
    float *to = packed;
    (void)scratch;
    memset(to, 0, base->packed_bytes);
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx += columns) {
            columns = ab_narrow_chunk(w->kernel[1] - kx, w->stride[1]);
            for (int64_t o = 0; o < out; o++)
                for (int64_t c = 0; c < columns; c++, to += AB_NARROW)
                    for (int64_t i = 0; i < in; i++)
                        to[i] = from[((o * in + i) * w->kernel[0] + ky) * w->kernel[1] + kx + c];
        }
    return AB_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool has_padding(const ab_window *w) { return w->padding[0] > 0 || w->padding[1] > 0; }

/* Forward reads planes [channel][column modulo stride][row][column / stride], so adjacent output pixels read
 * adjacent values. With one channel, stride 1 and no padding the image already has this layout. */
static bool is_planar(const ab_window *w) { return w->channels == 1 && w->stride[1] == 1 && !has_padding(w); }

static const float *planar(const narrow *p, const float *image, float *copy) {
    const ab_window *w = &p->conv.window;
    int64_t stride = w->stride[1];
    if (is_planar(w)) return image;
    memset(copy, 0, p->pieces.own_bytes);
    for (int64_t y = 0; y < w->in[0]; y++)
        for (int64_t x = 0; x < w->in[1]; x++) {
            int64_t at = x + w->padding[1];
            float *to =
                copy + ((at % stride) * p->padded_height + y + w->padding[0]) * p->phase_width + at / stride;
            for (int64_t c = 0; c < w->channels; c++, to += stride * p->padded_height * p->phase_width)
                *to = *image++;
        }
    return copy;
}

static void set_offsets(narrow *p) {
    const ab_window *w = &p->conv.window;
    int64_t *offset = p->offset;
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx++)
            for (int64_t c = 0; c < w->channels; c++) {
                int64_t x = kx * w->dilation[1], plane = c * w->stride[1] + x % w->stride[1];
                *offset++ =
                    (plane * p->padded_height + ky * w->dilation[0]) * p->phase_width + x / w->stride[1];
            }
}

typedef struct narrow_job {
    const narrow *p;
    const ab_pass_args *args;
    const float *bias;
} narrow_job;

/* The codes of image `image` of the result, where the loops round; else NULL. */
static uint16_t *rounded_of(const narrow *p, const ab_pass_args *args, int64_t image) {
    const ab_tensor *dst = args->stored ? args->stored->dst : NULL;
    if (!dst || !ab_is_half(dst->format)) return NULL;
    if (!ab_vec_conv_get()->rounds(p->conv.window.out[1], p->conv.out_channels)) return NULL;
    return (uint16_t *)dst->data + image * p->pieces.count[AB_PIECE_DST];
}

static void forward_image(void *argument, int64_t image, int thread) {
    const narrow_job *n = argument;
    const narrow *p = n->p;
    const ab_pass_args *args = n->args;
    (void)thread;
    const ab_window *w = &p->conv.window;
    const float *in =
        planar(p, ab_piece_read(&p->pieces, args, AB_PIECE_SRC, image), ab_piece_memory(&p->pieces, args));
    float *out = ab_piece_target(&p->pieces, args, image);
    uint16_t *codes = rounded_of(p, args, image);
    const bool is_bf16 = codes && args->stored->dst->format == &ab_format_bf16;
    for (int64_t y = 0; y < w->out[0]; y++) {
        ab_narrow_row job = {.in = in + y * w->stride[0] * p->phase_width,
                             .weights = args->weights,
                             .bias = n->bias,
                             .offset = p->offset,
                             .out = out + y * w->out[1] * p->conv.out_channels,
                             .codes = codes ? codes + y * w->out[1] * p->conv.out_channels : NULL,
                             .is_bf16 = is_bf16,
                             .taps = taps_of(&p->conv) * w->channels,
                             .pixels = w->out[1],
                             .channels = p->conv.out_channels,
                             .room = (w->out[0] - y) * w->out[1] * p->conv.out_channels};
        ab_vec_conv_get()->row(&job);
    }
    if (!codes) ab_piece_store(&p->pieces, args, image, out);
}

static ab_status run_forward(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
    float bias[AB_NARROW] = {0};
    for (int64_t o = 0; args->bias && o < p->conv.out_channels; o++) bias[o] = args->bias[o];
    narrow_job job = {p, args, bias};
    ab_for_prepared(p->threads, p->conv.batch, forward_image, &job);
    return AB_OK;
}

/* ---- backward data --------------------------------------------------------------------------- */

/* Adds every gradient row into the padded image, then copies the interior. */
static void data_image(void *argument, int64_t image, int thread) {
    const narrow *p = ((const narrow_job *)argument)->p;
    const ab_pass_args *args = ((const narrow_job *)argument)->args;
    (void)thread;
    const ab_window *w = &p->conv.window;
    int64_t channels = p->conv.out_channels, kernel_row = w->kernel[1] * channels * AB_NARROW;
    const float *dout = ab_piece_read(&p->pieces, args, AB_PIECE_SRC, image);
    float *sum = ab_piece_memory(&p->pieces, args), *din = ab_piece_target(&p->pieces, args, image);
    memset(sum, 0, p->pieces.own_bytes);
    for (int64_t y = 0; y < w->out[0]; y++)
        for (int64_t k = 0; k < w->kernel[0]; k++) {
            int64_t row = y * w->stride[0] + k * w->dilation[0];
            ab_narrow_scatter job = {.dout = dout + y * w->out[1] * channels,
                                     .weights = (const float *)args->weights + k * kernel_row,
                                     .sum = sum + row * p->padded_width * AB_NARROW,
                                     .pixels = w->out[1],
                                     .columns = w->kernel[1],
                                     .run = channels,
                                     .step = w->stride[1]};
            ab_vec_conv_get()->scatter(&job);
        }
    for (int64_t y = 0; y < w->in[0]; y++)
        ab_vec_conv_get()->keep(din + y * w->in[1] * w->channels,
                                sum + ((y + w->padding[0]) * p->padded_width + w->padding[1]) * AB_NARROW,
                                w->in[1], w->channels, (w->in[0] - y) * w->in[1] * w->channels);
    ab_piece_store(&p->pieces, args, image, din);
}

static ab_status run_backward_data(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
    narrow_job job = {p, args, NULL};
    ab_for_prepared(p->threads, p->conv.batch, data_image, &job);
    return AB_OK;
}

/* ---- backward weights ------------------------------------------------------------------------ */

/* The zero-padded image: the image itself without padding, else a copy. */
static const float *padded(const narrow *p, const float *image, float *copy) {
    const ab_window *w = &p->conv.window;
    int64_t row = w->in[1] * w->channels, wide = p->padded_width * w->channels;
    if (!has_padding(w)) return image;
    memset(copy, 0, p->pieces.own_bytes);
    for (int64_t y = 0; y < w->in[0]; y++)
        memcpy(copy + (y + w->padding[0]) * wide + w->padding[1] * w->channels, image + y * row,
               (size_t)row * sizeof *copy);
    return copy;
}

/* Partial weight gradients, stored after the threads' images. */
static float *blocks_of(const narrow *p, const ab_pass_args *args) {
    return (float *)args->scratch + (size_t)p->threads * (p->pieces.thread_bytes / sizeof(float));
}

/* Sums of every image's dout, [image][AB_NARROW], stored after the blocks. */
static float *bias_sums_of(const narrow *p, const ab_pass_args *args) {
    return blocks_of(p, args) + (size_t)p->blocks * (p->block_bytes / sizeof(float));
}

/* The halves of an image of dout, where the loops read them; else NULL. */
static const uint16_t *codes_of(const narrow *p, const ab_pass_args *args, int64_t image) {
    const ab_tensor *dout = args->stored ? args->stored->dout : NULL;
    if (!dout || !ab_is_half(dout->format) || !ab_vec_conv_get()->reads_codes) return NULL;
    return (const uint16_t *)dout->data + image * p->pieces.count[AB_PIECE_DOUT];
}

static void weights_image(const narrow *p, const ab_pass_args *args, int64_t image, float *dweight) {
    const ab_window *w = &p->conv.window;
    const uint16_t *codes = codes_of(p, args, image);
    int64_t wide = p->padded_width * w->channels;
    ab_narrow_image job = {.in = padded(p, ab_piece_read(&p->pieces, args, AB_PIECE_SRC, image),
                                        ab_piece_memory(&p->pieces, args)),
                           .dout = codes ? NULL : ab_piece_read(&p->pieces, args, AB_PIECE_DOUT, image),
                           .codes = codes,
                           .is_bf16 = codes && args->stored->dout->format == &ab_format_bf16,
                           .dweight = dweight,
                           .bias = args->dbias ? bias_sums_of(p, args) + image * AB_NARROW : NULL,
                           .height = w->out[0],
                           .width = w->out[1],
                           .channels = p->conv.out_channels,
                           .rows = w->kernel[0],
                           .run = w->kernel[1] * w->channels,
                           .image_step = w->stride[0] * wide,
                           .row_step = w->dilation[0] * wide,
                           .step = w->stride[1] * w->channels};
    ab_vec_conv_get()->weights(&job);
}

/* Sums the blocks and reorders [tap][in][8] to torch's {out, in, kh, kw}. */
static void join_blocks(const narrow *p, const float *blocks, float *dweight) {
    int64_t in = p->conv.window.channels, taps = taps_of(&p->conv);
    for (int64_t o = 0; o < p->conv.out_channels; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t tap = 0; tap < taps; tap++) {
                double sum = 0.0;
                for (int64_t b = 0; b < p->blocks; b++)
                    sum += (double)blocks[(size_t)b * (p->block_bytes / sizeof *blocks) +
                                          (size_t)((tap * in + i) * AB_NARROW + o)];
                dweight[(o * in + i) * taps + tap] = (float)sum;
            }
}

static void join_bias(const narrow *p, const float *sums, float *dbias) {
    for (int64_t o = 0; o < p->conv.out_channels; o++) {
        double sum = 0.0;
        for (int64_t image = 0; image < p->conv.batch; image++) sum += (double)sums[image * AB_NARROW + o];
        dbias[o] = (float)sum;
    }
}

static void weights_block(void *argument, int64_t b, int thread) {
    const narrow_job *job = argument;
    const narrow *p = job->p;
    (void)thread;
    int64_t images = ab_div_up(p->conv.batch, p->blocks);
    float *dweight = blocks_of(p, job->args) + (size_t)b * (p->block_bytes / sizeof(float));
    memset(dweight, 0, p->block_bytes);
    for (int64_t image = b * images; image < ab_min64((b + 1) * images, p->conv.batch); image++)
        weights_image(p, job->args, image, dweight);
}

static ab_status run_backward_weights(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
    narrow_job job = {p, args, NULL};
    ab_for_prepared(p->threads, p->blocks, weights_block, &job);
    join_blocks(p, blocks_of(p, args), args->dst);
    if (args->dbias) join_bias(p, bias_sums_of(p, args), args->dbias);
    const ab_tensor *dout = args->stored ? args->stored->dout : NULL;
    const int64_t n = p->conv.batch * p->pieces.count[AB_PIECE_DOUT];
    /* this kernel multiplies padding: 0 * inf */
    if (has_padding(&p->conv.window) && args->nonfinite &&
        !ab_array_finite(dout ? dout->data : args->dout, dout ? dout->format : &ab_format_fp32, n))
        *args->nonfinite = true;
    return AB_OK;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) {
    free(((narrow *)pass)->offset);
    free(pass);
}

/* Result channels, one per vector element. */
static int64_t delivered(const ab_pass_spec *spec) {
    return spec->kind == AB_PASS_BACKWARD_DATA ? spec->conv.window.channels : spec->conv.out_channels;
}

static bool applies(const ab_pass_spec *spec) {
    return spec->operands == &ab_format_fp32 && spec->conv.groups == 1 &&
           spec->conv.window.dilation[1] == 1 && delivered(spec) <= AB_NARROW;
}

static size_t image_bytes(const narrow *p, ab_pass_kind kind) {
    const ab_window *w = &p->conv.window;
    const int64_t floats[AB_PASSES] = {
        [AB_PASS_FORWARD] = is_planar(w) ? 0 : w->channels * w->stride[1] * p->phase_width * p->padded_height,
        [AB_PASS_BACKWARD_DATA] = AB_NARROW * p->padded_width * p->padded_height,
        [AB_PASS_BACKWARD_WEIGHTS] = has_padding(w) ? w->channels * p->padded_width * p->padded_height : 0};
    return ab_floats_bytes(floats[kind]);
}

static void size_buffers(narrow *p, const ab_pass_spec *spec) {
    const ab_pass_kind kind = spec->kind;
    const ab_window *w = &p->conv.window;
    size_t weights = ab_floats_bytes(taps_of(&p->conv) * AB_NARROW *
                                     (kind == AB_PASS_BACKWARD_DATA ? p->conv.out_channels : w->channels));
    p->padded_height = w->in[0] + 2 * w->padding[0];
    p->padded_width = w->in[1] + 2 * w->padding[1];
    p->phase_width = ab_div_up(p->padded_width, w->stride[1]);
    p->pieces = ab_image_pieces_of(spec, image_bytes(p, kind));
    p->base.scratch_bytes = (size_t)p->threads * p->pieces.thread_bytes;
    if (kind != AB_PASS_BACKWARD_WEIGHTS) {
        p->base.packed_bytes = weights;
        return;
    }
    p->blocks = ab_min64(p->conv.batch, MAX_IMAGE_BLOCKS);
    p->block_bytes = weights;
    p->base.sums_bias = true;
    p->base.scratch_bytes += (size_t)p->blocks * p->block_bytes + ab_floats_bytes(p->conv.batch * AB_NARROW);
}

ab_status ab_narrow_pass(const ab_pass_spec *spec, ab_pass **pass) {
    static const struct {
        ab_status (*pack)(ab_pass *, const void *, void *, void *);
        ab_status (*run)(ab_pass *, const ab_pass_args *);
    } kinds[AB_PASSES] = {[AB_PASS_FORWARD] = {pack_forward, run_forward},
                          [AB_PASS_BACKWARD_DATA] = {pack_backward, run_backward_data},
                          [AB_PASS_BACKWARD_WEIGHTS] = {NULL, run_backward_weights}};
    *pass = NULL;
    if (!applies(spec)) return AB_OK;
    narrow *p = calloc(1, sizeof *p);
    const int64_t offsets = spec->sizes_only ? 1 : taps_of(&spec->conv) * spec->conv.window.channels;
    int64_t *offset = calloc((size_t)offsets, sizeof *offset);
    if (!p || !offset) {
        free(p);
        free(offset);
        return ab_fail(AB_NO_MEMORY, "cannot allocate a narrow convolution");
    }
    p->conv = spec->conv;
    p->offset = offset;
    p->threads = ab_parallel_threads();
    p->base.pack = kinds[spec->kind].pack;
    p->base.run = kinds[spec->kind].run;
    p->base.destroy = destroy;
    p->base.takes_stored = spec->stored;
    size_buffers(p, spec);
    if (!spec->sizes_only) set_offsets(p);
    ab_text_show(p->base.text, sizeof p->base.text, "narrow:%s", ab_isa_name(ab_isa_get()));
    *pass = &p->base;
    return AB_OK;
}
