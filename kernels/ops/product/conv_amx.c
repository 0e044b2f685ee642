/* Convolutions of few channels with bf16 operands on the tile unit (amx.h), one image at a time; see pass.h.
 * Each thread works on a zero-padded copy of its image, of which 16 pixels of a row are a tile: the values
 * under a row of the kernel are contiguous there. An input gradient is the convolution of the padded output
 * gradient with the turned kernel. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/amx.h"
#include "kernels/ops/product/nonfinite.h"

#include <stdlib.h>
#include <string.h>

/* Weight gradients are summed in at most this many blocks of images, then over the blocks in order.
 * RUN: most values under a row of the kernel in a weight gradient. */
enum {
    SIDE = AB_AMX_SIDE,
    IMAGE_ROWS = 4,
    MAX_IMAGE_BLOCKS = 16,
    FEW_CHANNELS = 8,
    RUN = AB_AMX_TILES * SIDE
};

typedef struct conv_amx {
    ab_pass base;
    ab_conv conv;
    ab_pass_kind kind;
    int threads;
    int64_t channels, delivered; /* of the padded image; of the result */
    int64_t image[2], size[2],
        edge[2];       /* rows and columns of the image, of its padded copy, and zeros before it */
    int64_t out[2];    /* rows and columns of the result (weight gradients: of dout) */
    int64_t run;       /* values under a row of the kernel, a multiple of AB_AMX_INNER */
    int64_t positions; /* weight gradients: pixels of a dout that is as wide as the copy */
    int64_t blocks;    /* of images */
    size_t copy_bytes, result_bytes, pairs_bytes, turned_bytes, thread_bytes, block_bytes;
} conv_amx;

typedef struct conv_job {
    const conv_amx *p;
    const ab_pass_args *args;
    const uint16_t *src, *dout; /* dout: of weight gradients */
    ab_values dst;
    float bias[SIDE];
    bool nonfinite[MAX_IMAGE_BLOCKS]; /* of a block of images */
} conv_job;

/* ---- scratch: per thread [copy][result or pairs, turned dout], then the blocks ----------------- */

static char *thread_memory(const conv_job *job) {
    return (char *)job->args->scratch + (size_t)ab_parallel_thread() * job->p->thread_bytes;
}

static int64_t image_values(const conv_amx *p) { return p->image[0] * p->image[1] * p->channels; }
static int64_t dout_values(const conv_amx *p) { return p->out[0] * p->out[1] * p->conv.out_channels; }

/* A padded copy of an image. */
static uint16_t *copy_image(const conv_job *job, int64_t image) {
    const conv_amx *p = job->p;
    uint16_t *copy = (uint16_t *)(void *)thread_memory(job);
    const uint16_t *from = job->src + image * image_values(p);
    const int64_t row = p->image[1] * p->channels;
    memset(copy, 0, p->copy_bytes);
    for (int64_t y = 0; y < p->image[0]; y++)
        memcpy(copy + ((y + p->edge[0]) * p->size[1] + p->edge[1]) * p->channels, from + y * row,
               (size_t)row * sizeof *copy);
    return copy;
}

/* Images [first, end) of a block. */
static void block_range(const conv_amx *p, int64_t block, int64_t *first, int64_t *end) {
    const int64_t images = ab_div_up(p->conv.batch, p->blocks);
    *first = ab_min64(block * images, p->conv.batch);
    *end = ab_min64((block + 1) * images, p->conv.batch);
}

/* ---- forward and input gradients ------------------------------------------------------------- */

/* Packed: [kernel row][run / 2][16 channels of the result][2]. */
static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const conv_amx *p = (const conv_amx *)base;
    const int64_t in = p->conv.window.channels, kh = p->conv.window.kernel[0], kw = p->conv.window.kernel[1];
    const bool turned = p->kind == AB_PASS_BACKWARD_DATA;
    const uint16_t *from = weights;
    uint16_t *to = packed;
    (void)scratch;
    memset(to, 0, base->packed_bytes);
    for (int64_t o = 0; o < p->conv.out_channels; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t y = 0; y < kh; y++)
                for (int64_t x = 0; x < kw; x++) {
                    const int64_t row = turned ? kh - 1 - y : y, column = turned ? kw - 1 - x : x,
                                  k = column * p->channels + (turned ? o : i), n = turned ? i : o;
                    to[((row * p->run + k) / 2 * SIDE + n) * 2 + k % 2] =
                        from[((o * in + i) * kh + y) * kw + x];
                }
    return AB_OK;
}

static void slide_rows(const conv_job *job, const uint16_t *copy, int64_t y, float *sums, float *result) {
    const conv_amx *p = job->p;
    ab_amx_slide slide = {.b = job->args->weights,
                          .c = sums,
                          .a_step = p->channels,
                          .runs = p->conv.window.kernel[0],
                          .run = p->run,
                          .run_step = p->size[1] * p->channels};
    const int64_t rows = ab_min64(IMAGE_ROWS, p->out[0] - y);
    for (int64_t x = 0; x < p->out[1]; x += SIDE) {
        for (int64_t i = 0; i < IMAGE_ROWS; i++)
            slide.a[i] = copy + ((y + ab_min64(i, rows - 1)) * p->size[1] + x) * p->channels;
        ab_amx_convolve(&slide);
        for (int64_t i = 0; i < rows; i++)
            ab_amx_keep(result + ((y + i) * p->out[1] + x) * p->delivered, p->delivered,
                        sums + i * SIDE * SIDE, ab_min64(SIDE, p->out[1] - x), p->delivered, job->bias);
    }
}

static void slide_image(const conv_job *job, int64_t image) {
    const conv_amx *p = job->p;
    const uint16_t *copy = copy_image(job, image);
    const int64_t n = p->out[0] * p->out[1] * p->delivered;
    const ab_pass_stored *stored = job->args->stored;
    float *sums = (float *)(void *)(thread_memory(job) + p->copy_bytes),
          *buffer = sums + IMAGE_ROWS * SIDE * SIDE;
    float *result = stored ? ab_target(stored->dst, image * n, buffer) : job->args->dst + image * n;
    for (int64_t y = 0; y < p->out[0]; y += IMAGE_ROWS) slide_rows(job, copy, y, sums, result);
    if (stored && !ab_is_f32(stored->dst)) ab_emit(stored->exec, stored->dst, image * n, result, n);
}

static void slide_block(void *argument, int64_t block, int thread) {
    conv_job *job = argument;
    const conv_amx *p = job->p;
    int64_t first, end;
    (void)thread;
    block_range(p, block, &first, &end);
    ab_amx_begin();
    for (int64_t image = first; image < end; image++) slide_image(job, image);
    ab_amx_end();
    job->nonfinite[block] = !ab_values_finite(job->src + first * image_values(p), &ab_format_bf16,
                                              (end - first) * image_values(p));
}

/* ---- weight gradients ------------------------------------------------------------------------ */

/* A block's sums: [kernel row][16 outputs][RUN]. */
static float *block_sums(const conv_job *job, int64_t block) {
    const conv_amx *p = job->p;
    return (float *)(void *)((char *)job->args->scratch + (size_t)p->threads * p->thread_bytes +
                             (size_t)block * p->block_bytes);
}

/* dout of an image as [16 outputs][positions], with zeros where the copy is wider. */
static const uint16_t *turn_dout(const conv_job *job, int64_t image) {
    const conv_amx *p = job->p;
    const int64_t channels = p->conv.out_channels;
    uint16_t *turned = (uint16_t *)(void *)(thread_memory(job) + p->copy_bytes + p->pairs_bytes);
    const uint16_t *from = job->dout + image * dout_values(p);
    memset(turned, 0, p->turned_bytes);
    for (int64_t y = 0; y < p->out[0]; y++)
        for (int64_t x = 0; x < p->out[1]; x += SIDE)
            ab_amx_turn(turned + y * p->size[1] + x, p->positions, from + (y * p->out[1] + x) * channels,
                        channels, ab_min64(SIDE, p->out[1] - x), channels);
    return turned;
}

/* Values of the copy in pairs of those of two pixels beside each other. */
static const uint16_t *pair_pixels(const conv_job *job, const uint16_t *copy) {
    const conv_amx *p = job->p;
    uint16_t *pairs = (uint16_t *)(void *)(thread_memory(job) + p->copy_bytes);
    ab_amx_pair_up(pairs, copy, p->channels, (int64_t)(p->pairs_bytes / (2 * sizeof *pairs)));
    return pairs;
}

static void weights_image(const conv_job *job, int64_t image, float *sums, bool continues) {
    const conv_amx *p = job->p;
    const ab_window *w = &p->conv.window;
    const uint16_t *pairs = pair_pixels(job, copy_image(job, image));
    ab_amx_product m = {.a = turn_dout(job, image),
                        .a_step = p->positions,
                        .c_step = RUN,
                        .b_step = 2 * SIDE,
                        .b_row = 4 * p->channels,
                        .inner = p->positions,
                        .tiles = (int)ab_div_up(w->kernel[1] * p->channels, SIDE),
                        .continues = continues};
    for (int64_t y = 0; y < w->kernel[0]; y++) {
        m.b = pairs + 2 * y * p->size[1] * p->channels;
        m.c = sums + y * SIDE * RUN;
        ab_amx_multiply(&m);
    }
}

static void weights_block(void *argument, int64_t block, int thread) {
    conv_job *job = argument;
    const conv_amx *p = job->p;
    int64_t first, end;
    (void)thread;
    block_range(p, block, &first, &end);
    float *sums = block_sums(job, block);
    if (first == end) memset(sums, 0, p->block_bytes);
    ab_amx_begin();
    for (int64_t image = first; image < end; image++) weights_image(job, image, sums, image > first);
    ab_amx_end();
    job->nonfinite[block] = !ab_values_finite(job->src + first * image_values(p), &ab_format_bf16,
                                              (end - first) * image_values(p)) ||
                            !ab_values_finite(job->dout + first * dout_values(p), &ab_format_bf16,
                                              (end - first) * dout_values(p));
}

/* Sums the blocks in torch's layout. */
static void join_blocks(const conv_job *job, float *dweight) {
    const conv_amx *p = job->p;
    const int64_t in = p->channels, kh = p->conv.window.kernel[0], kw = p->conv.window.kernel[1];
    const int64_t step = (int64_t)(p->block_bytes / sizeof(float));
    const float *blocks = block_sums(job, 0);
    for (int64_t o = 0; o < p->conv.out_channels; o++)
        for (int64_t i = 0; i < in; i++)
            for (int64_t tap = 0; tap < kh * kw; tap++) {
                const float *from = blocks + (tap / kw * SIDE + o) * RUN + tap % kw * in + i;
                double sum = 0.0;
                for (int64_t b = 0; b < p->blocks; b++) sum += (double)from[b * step];
                dweight[(o * in + i) * kh * kw + tap] = (float)sum;
            }
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const conv_amx *p = (const conv_amx *)base;
    const ab_pass_stored *stored = args->stored;
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    conv_job job = {.p = p, .args = args, .src = stored ? stored->src->data : args->src};
    if (weights) job.dout = stored ? stored->dout->data : args->dout;
    for (int64_t o = 0; args->bias && !weights && o < p->delivered; o++) job.bias[o] = args->bias[o];
    ab_for_prepared(p->threads, p->blocks, weights ? weights_block : slide_block, &job);
    if (weights) join_blocks(&job, args->dst);
    for (int64_t b = 0; args->nonfinite && b < p->blocks; b++)
        if (job.nonfinite[b]) *args->nonfinite = true;
    return AB_OK;
}

static void destroy(ab_pass *pass) { free(pass); }

static void set_shape(conv_amx *p) {
    const ab_window *w = &p->conv.window;
    const bool data = p->kind == AB_PASS_BACKWARD_DATA, weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    p->channels = data ? p->conv.out_channels : w->channels;
    p->delivered = data ? w->channels : p->conv.out_channels;
    for (int i = 0; i < 2; i++) {
        p->image[i] = data ? w->out[i] : w->in[i];
        p->out[i] = data ? w->in[i] : w->out[i];
        p->edge[i] = data ? w->kernel[i] - 1 - w->padding[i] : w->padding[i];
        p->size[i] = p->out[i] + w->kernel[i] - 1;
    }
    p->size[1] += weights ? p->size[1] % 2 : 0;
    p->run = ab_div_up(w->kernel[1] * p->channels, AB_AMX_INNER) * AB_AMX_INNER;
    const int64_t last = ab_max64(p->size[1], ab_div_up(p->out[1], SIDE) * SIDE); /* of the last row */
    p->positions = ab_div_up((p->out[0] - 1) * p->size[1] + last, AB_AMX_INNER) * AB_AMX_INNER;
    p->blocks = ab_min64(p->conv.batch, MAX_IMAGE_BLOCKS);
}

/* Tiles read beyond the last pixel of a copy: a tile of pixels and a run of values, or all positions for the
 * last kernel row. */
static void size_buffers(conv_amx *p) {
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    const int64_t rows = p->conv.window.kernel[0],
                  read = p->channels *
                         (weights ? p->positions + rows * p->size[1] : p->size[0] * p->size[1] + SIDE);
    const int64_t values = ab_div_up(read + p->run + RUN, SIDE) * SIDE;
    p->copy_bytes = ab_halves_bytes(values + p->channels + SIDE);
    if (weights) {
        p->pairs_bytes = ab_halves_bytes(2 * values);
        p->turned_bytes = ab_halves_bytes(SIDE * p->positions + SIDE);
        p->block_bytes = ab_floats_bytes(rows * SIDE * RUN);
    } else {
        p->base.packed_bytes = ab_halves_bytes(rows * p->run * SIDE);
        p->result_bytes = ab_floats_bytes(IMAGE_ROWS * SIDE * SIDE + p->out[0] * p->out[1] * p->delivered);
    }
    p->thread_bytes = p->copy_bytes + p->result_bytes + p->pairs_bytes + p->turned_bytes;
    p->base.scratch_bytes = (size_t)p->threads * p->thread_bytes + (size_t)p->blocks * p->block_bytes;
}

/* A row of the kernel that is shorter than half a tile wastes more than vectors do. */
static bool applies(const ab_pass_spec *spec) {
    const ab_window *w = &spec->conv.window;
    const int64_t row = w->kernel[1] * w->channels;
    const bool plain = w->stride[0] == 1 && w->stride[1] == 1 && w->dilation[0] == 1 && w->dilation[1] == 1 &&
                       w->padding[0] < w->kernel[0] && w->padding[1] < w->kernel[1];
    return spec->operands == &ab_format_bf16 && !spec->accumulate && plain && spec->conv.groups == 1 &&
           w->channels <= FEW_CHANNELS && spec->conv.out_channels <= SIDE && row >= AB_AMX_INNER / 2 &&
           row <= RUN && ab_amx_is_usable();
}

ab_status ab_conv_amx_pass(const ab_pass_spec *spec, ab_pass **pass) {
    *pass = NULL;
    if (!applies(spec)) return AB_OK;
    conv_amx *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a convolution of few channels");
    p->threads = ab_parallel_threads();
    p->kind = spec->kind;
    p->conv = spec->conv;
    p->base = (ab_pass){.takes_stored = spec->stored,
                        .pack = spec->kind == AB_PASS_BACKWARD_WEIGHTS ? NULL : pack,
                        .run = run,
                        .destroy = destroy};
    set_shape(p);
    size_buffers(p);
    ab_text_show(p->base.text, sizeof p->base.text, "tiles:amx_bf16");
    *pass = &p->base;
    return AB_OK;
}
