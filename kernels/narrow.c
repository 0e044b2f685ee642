/* Narrow convolutions, image by image; see narrow.h. Each thread works on a zero-padded copy of its image. */
#include "kernels/narrow.h"

#include "kernels/blocks.h"
#include "kernels/isa.h"
#include "kernels/vec_conv.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Weight gradients are summed in at most this many blocks of images, then over the blocks in order. */
enum { MAX_IMAGE_BLOCKS = 16 };

typedef struct narrow {
    ab_pass base;
    ab_conv conv;
    int threads;
    int64_t padded_width, padded_height; /* of the image with its padding */
    int64_t channels;                    /* of a padded image's pixel */
    size_t image_bytes;                  /* of a thread's padded image */
    int64_t blocks;                      /* backward weights */
    size_t block_bytes;
} narrow;

static int64_t taps_of(const ab_conv *conv) { return conv->window.kernel[0] * conv->window.kernel[1]; }

static float *thread_image(const narrow *p, void *scratch) {
    return (float *)scratch + (size_t)omp_get_thread_num() * (p->image_bytes / sizeof(float));
}

/* ---- weights ---------------------------------------------------------------------------------------------- */

/* Packed: [kernel row][kernel column][summed channel][8 delivered channels, zeros behind them]. */
static ab_status pack_weights(const ab_conv *conv, const float *from, float *to, bool forward) {
    int64_t in = conv->window.channels, out = conv->out_channels, taps = taps_of(conv);
    int64_t summed = forward ? in : out;
    memset(to, 0, (size_t)(taps * summed * AB_NARROW) * sizeof *to);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t tap = 0; tap < taps; tap++) {
                int64_t place = forward ? i * AB_NARROW + o : o * AB_NARROW + i;
                to[tap * summed * AB_NARROW + place] = from[(o * in + i) * taps + tap];
            }
    return AB_OK;
}

static ab_status pack_forward(ab_pass *base, const void *weights, void *packed, void *scratch) {
    (void)scratch;
    return pack_weights(&((const narrow *)base)->conv, weights, packed, true);
}

static ab_status pack_backward(ab_pass *base, const void *weights, void *packed, void *scratch) {
    (void)scratch;
    return pack_weights(&((const narrow *)base)->conv, weights, packed, false);
}

/* ---- images ----------------------------------------------------------------------------------------------- */

static bool has_padding(const ab_window *w) { return w->padding[0] > 0 || w->padding[1] > 0; }

/* The image with zeros around it: itself if there is no padding, else a copy. */
static const float *padded(const narrow *p, const float *image, float *copy) {
    const ab_window *w = &p->conv.window;
    int64_t row = w->in[1] * w->channels, wide = p->padded_width * w->channels;
    if (!has_padding(w)) return image;
    memset(copy, 0, p->image_bytes);
    for (int64_t y = 0; y < w->in[0]; y++)
        memcpy(copy + (y + w->padding[0]) * wide + w->padding[1] * w->channels, image + y * row,
               (size_t)row * sizeof *copy);
    return copy;
}

static void forward_image(const narrow *p, const ab_pass_args *args, const float *bias, int64_t image) {
    const ab_window *w = &p->conv.window;
    int64_t wide = p->padded_width * w->channels, pixels = w->in[0] * w->in[1] * w->channels;
    const float *in = padded(p, (const float *)args->src + image * pixels, thread_image(p, args->scratch));
    float *out = args->dst + image * w->out[0] * w->out[1] * p->conv.out_channels;
    for (int64_t y = 0; y < w->out[0]; y++) {
        ab_narrow_row job = {.in = in + y * w->stride[0] * wide,
                             .weights = args->weights,
                             .bias = bias,
                             .out = out + y * w->out[1] * p->conv.out_channels,
                             .pixels = w->out[1],
                             .channels = p->conv.out_channels,
                             .rows = w->kernel[0],
                             .run = w->kernel[1] * w->channels,
                             .row_step = w->dilation[0] * wide,
                             .step = w->stride[1] * w->channels,
                             .last = y == w->out[0] - 1};
        ab_vec_conv_get()->row(&job);
    }
}

static ab_status run_forward(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
    float bias[AB_NARROW] = {0};
    for (int64_t o = 0; args->bias && o < p->conv.out_channels; o++) bias[o] = args->bias[o];
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t image = 0; image < p->conv.batch; image++) forward_image(p, args, bias, image);
    return AB_OK;
}

/* Adds every gradient row into the padded image, then keeps the part inside. */
static void data_image(const narrow *p, const ab_pass_args *args, int64_t image) {
    const ab_window *w = &p->conv.window;
    int64_t channels = p->conv.out_channels, kernel_row = w->kernel[1] * channels * AB_NARROW;
    const float *dout = (const float *)args->src + image * w->out[0] * w->out[1] * channels;
    float *sum = thread_image(p, args->scratch), *din = args->dst + image * w->in[0] * w->in[1] * w->channels;
    memset(sum, 0, p->image_bytes);
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
        for (int64_t x = 0; x < w->in[1]; x++) {
            const float *from = sum + ((y + w->padding[0]) * p->padded_width + x + w->padding[1]) * AB_NARROW;
            for (int64_t c = 0; c < w->channels; c++) *din++ = from[c];
        }
}

static ab_status run_backward_data(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t image = 0; image < p->conv.batch; image++) data_image(p, args, image);
    return AB_OK;
}

/* ---- backward weights ------------------------------------------------------------------------------------- */

static void weights_image(const narrow *p, const ab_pass_args *args, int64_t image, float *dweight) {
    const ab_window *w = &p->conv.window;
    int64_t wide = p->padded_width * w->channels, pixels = w->in[0] * w->in[1] * w->channels;
    ab_narrow_image job = {
        .in = padded(p, (const float *)args->src + image * pixels, thread_image(p, args->scratch)),
        .dout = (const float *)args->dout + image * w->out[0] * w->out[1] * p->conv.out_channels,
        .dweight = dweight,
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

/* Sum of the blocks, from [tap][in][8] to torch's {out, in, kh, kw}. */
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

static ab_status run_backward_weights(ab_pass *base, const ab_pass_args *args) {
    const narrow *p = (const narrow *)base;
    float *blocks = (float *)args->scratch + (size_t)p->threads * (p->image_bytes / sizeof *blocks);
    int64_t images = ab_div_up(p->conv.batch, p->blocks);
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t b = 0; b < p->blocks; b++) {
        float *dweight = blocks + (size_t)b * (p->block_bytes / sizeof *blocks);
        memset(dweight, 0, p->block_bytes);
        for (int64_t image = b * images; image < ab_min64((b + 1) * images, p->conv.batch); image++)
            weights_image(p, args, image, dweight);
    }
    join_blocks(p, blocks, args->dst);
    return AB_OK;
}

/* ---- set-up ----------------------------------------------------------------------------------------------- */

static void destroy(ab_pass *pass) { free(pass); }

static bool applies(const ab_pass_spec *spec) {
    const ab_conv *conv = &spec->conv;
    int64_t delivered = spec->kind == AB_PASS_BACKWARD_DATA ? conv->window.channels : conv->out_channels;
    return spec->operands == &ab_format_fp32 && conv->groups == 1 && conv->window.dilation[1] == 1 &&
           delivered <= AB_NARROW;
}

static void size_buffers(narrow *p, ab_pass_kind kind) {
    const ab_window *w = &p->conv.window;
    bool data = kind == AB_PASS_BACKWARD_DATA;
    int64_t weights = taps_of(&p->conv) * (data ? p->conv.out_channels : w->channels) * AB_NARROW;
    p->padded_height = w->in[0] + 2 * w->padding[0];
    p->padded_width = w->in[1] + 2 * w->padding[1];
    p->channels = data ? AB_NARROW : w->channels;
    if (data || has_padding(w))
        p->image_bytes = ab_floats_bytes(p->padded_height * p->padded_width * p->channels);
    p->base.scratch_bytes = (size_t)p->threads * p->image_bytes;
    if (kind != AB_PASS_BACKWARD_WEIGHTS) {
        p->base.packed_bytes = ab_floats_bytes(weights);
        return;
    }
    p->blocks = ab_min64(p->conv.batch, MAX_IMAGE_BLOCKS);
    p->block_bytes = ab_floats_bytes(weights);
    p->base.scratch_bytes += (size_t)p->blocks * p->block_bytes;
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
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a narrow convolution");
    p->conv = spec->conv;
    p->threads = omp_get_max_threads();
    p->base.pack = kinds[spec->kind].pack;
    p->base.run = kinds[spec->kind].run;
    p->base.destroy = destroy;
    size_buffers(p, spec->kind);
    snprintf(p->base.text, sizeof p->base.text, "narrow:%s", ab_isa_name(ab_isa_get()));
    *pass = &p->base;
    return AB_OK;
}
