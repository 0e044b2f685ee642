/* Convolutions with bf16 operands on a unit for pairs (bf16_unit.h), one image at a time; see pass.h. Each
 * thread works on a zero-padded copy of its image: the values under a row of the kernel are contiguous
 * there. Positions run on from one row of the copy to the next; results at those
 * beyond the end of a row are dropped. An input gradient is the convolution of the padded output gradient
 * with the turned kernel. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/bf16_unit.h"
#include "kernels/ops/product/image_pieces.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/vec/vec_ops.h"

#include <stdlib.h>
#include <string.h>

/* Weight gradients are summed in at most this many blocks of images, then over the blocks in order.
 * RUN: values under a row of the kernel that a weight gradient sums at once. */
enum { SIDE = AB_BF16_SIDE, MAX_IMAGE_BLOCKS = 8, MOST_CHANNELS = 64, RUN = AB_BF16_TILES * SIDE };

typedef struct conv_bf16 {
    ab_pass base;
    const ab_bf16_unit *unit;
    ab_conv conv;
    ab_pass_kind kind;
    int threads;
    int64_t channels, delivered; /* of the padded image; of the result */
    int64_t wide, sides;         /* delivered (weight gradients: outputs), up to whole tiles; their number */
    int64_t image[2], size[2],
        edge[2];       /* rows and columns of the image, of its padded copy, and zeros before it */
    int64_t out[2];    /* rows and columns of the result (weight gradients: of dout) */
    int64_t stride[2]; /* of the kernel in the copy */
    bool by_rows;      /* rows of the result are computed one by one, else all together: tiles */
    int64_t at_once;   /* rows that are computed together */
    int64_t line;      /* weight gradients: positions from one row of dout to the next */
    int64_t run;       /* values under a row of the kernel, a multiple of the unit's */
    int64_t span;      /* weight gradients: values under a row of the kernel, up to whole tiles */
    int64_t positions; /* of the rows at once, as wide as the copy if there are several; weight gradients: of
                          dout */
    int64_t blocks;    /* of images */
    size_t copy_bytes, result_bytes, pairs_bytes, turned_bytes, thread_bytes, block_bytes;
} conv_bf16;

typedef struct conv_job {
    const conv_bf16 *p;
    const ab_pass_args *args;
    const uint16_t *src, *dout; /* dout: of weight gradients */
    ab_values dst;
    float bias[MOST_CHANNELS];
    bool nonfinite[MAX_IMAGE_BLOCKS]; /* of a block of images */
} conv_job;

/* ---- scratch: per thread [copy][result or pairs, turned dout], then the blocks ----------------- */

static char *thread_memory(const conv_job *job) {
    return (char *)job->args->scratch + (size_t)ab_parallel_thread() * job->p->thread_bytes;
}

static int64_t image_values(const conv_bf16 *p) { return p->image[0] * p->image[1] * p->channels; }
static int64_t dout_values(const conv_bf16 *p) { return p->out[0] * p->out[1] * p->conv.out_channels; }

/* The calling thread's copy, zeroed: images are as large as each other, so the zeros around them stay. */
static uint16_t *clear_copy(const conv_job *job) {
    uint16_t *copy = (uint16_t *)(void *)thread_memory(job);
    memset(copy, 0, job->p->copy_bytes);
    return copy;
}

/* Strides may leave out the last rows and columns. */
static void copy_image(const conv_job *job, int64_t image, uint16_t *copy) {
    const conv_bf16 *p = job->p;
    const uint16_t *from = job->src + image * image_values(p);
    const int64_t rows = ab_min64(p->image[0], p->size[0] - p->edge[0]), row = p->image[1] * p->channels,
                  columns = ab_min64(p->image[1], p->size[1] - p->edge[1]);
    for (int64_t y = 0; y < rows; y++)
        memcpy(copy + ((y + p->edge[0]) * p->size[1] + p->edge[1]) * p->channels, from + y * row,
               (size_t)(columns * p->channels) * sizeof *copy);
}

/* Fetches a part of the image after this one (ab_fetch_part). values: of an image of `from`. */
static void fetch_next(const conv_job *job, const uint16_t *from, int64_t values, int64_t image, int64_t part,
                       int64_t parts) {
    if (image + 1 < job->p->conv.batch)
        ab_fetch_part(from + (image + 1) * values, values * (int64_t)sizeof *from, part, parts);
}

static bool is_finite(const uint16_t *from, int64_t values, int64_t image) {
    return ab_values_finite(from + image * values, &ab_format_bf16, values);
}

/* Images [first, end) of a block. */
static void block_range(const conv_bf16 *p, int64_t block, int64_t *first, int64_t *end) {
    const int64_t images = ab_div_up(p->conv.batch, p->blocks);
    *first = ab_min64(block * images, p->conv.batch);
    *end = ab_min64((block + 1) * images, p->conv.batch);
}

/* ---- forward and input gradients ------------------------------------------------------------- */

/* Packed: [16 channels of the result][kernel row][run / 2][channel of the 16][2]. */
static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const conv_bf16 *p = (const conv_bf16 *)base;
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
                    to[(((n / SIDE * kh + row) * p->run + k) / 2 * SIDE + n % SIDE) * 2 + k % 2] = *from++;
                }
    return AB_OK;
}

/* Results of the rows of an image from y on, [position][wide]. */
static void slide_positions(const conv_job *job, const uint16_t *copy, int64_t image, int64_t y,
                            float *result) {
    const conv_bf16 *p = job->p;
    const int64_t weights = p->conv.window.kernel[0] * p->run * SIDE;
    const ab_pass_stored *stored = job->args->stored;
    ab_bf16_product m = {.a = copy + y * p->stride[0] * p->size[1] * p->channels,
                         .b = job->args->weights,
                         .start = job->bias,
                         .c = result,
                         .a_step = p->stride[1] * p->channels,
                         .c_step = p->wide,
                         .b_step = weights,
                         .b_row = 2 * SIDE,
                         .rows = p->positions,
                         .inner = p->run,
                         .runs = p->conv.window.kernel[0],
                         .run_step = p->size[1] * p->channels,
                         .b_run = p->run * SIDE,
                         .tiles = (int)p->sides};
    if (stored && p->by_rows) {
        m.stored = ab_element(stored->dst, (image * p->out[0] + y) * p->out[1] * p->delivered);
        m.stored_step = p->delivered * (int64_t)ab_element_bytes(stored->dst);
        m.stored_bytes = m.stored_step;
    }
    fetch_next(job, job->src, image_values(p), image, y, p->out[0]);
    p->unit->multiply(&m);
}

/* Row y of the result of an image, without what lies beyond its end. */
static void keep_row(const conv_job *job, int64_t image, int64_t y, const float *from, float *buffer) {
    const conv_bf16 *p = job->p;
    const int64_t n = p->out[1] * p->delivered, at = (image * p->out[0] + y) * n;
    const ab_pass_stored *stored = job->args->stored;
    const bool rounds = stored && !ab_is_f32(stored->dst);
    float *to = rounds ? buffer : stored ? ab_target(stored->dst, at, NULL) : job->args->dst + at;
    if (p->delivered < p->wide)
        for (int64_t x = 0; x < p->out[1]; x++)
            memcpy(to + x * p->delivered, from + x * p->wide, (size_t)p->delivered * sizeof *to);
    else if (!rounds)
        memcpy(to, from, (size_t)n * sizeof *to);
    if (rounds) ab_emit(stored->exec, stored->dst, at, p->delivered < p->wide ? buffer : from, n);
}

static void slide_image(const conv_job *job, int64_t image, uint16_t *copy) {
    const conv_bf16 *p = job->p;
    float *result = (float *)(void *)(thread_memory(job) + p->copy_bytes),
          *row = result + p->positions * p->wide;
    copy_image(job, image, copy);
    for (int64_t y = 0; y < p->out[0]; y += p->at_once) {
        slide_positions(job, copy, image, y, result);
        for (int64_t i = 0; i < p->at_once; i++)
            keep_row(job, image, y + i, result + i * p->size[1] * p->wide, row);
    }
}

static void slide_block(void *argument, int64_t block, int thread) {
    conv_job *job = argument;
    const conv_bf16 *p = job->p;
    int64_t first, end;
    (void)thread;
    block_range(p, block, &first, &end);
    uint16_t *copy = clear_copy(job);
    p->unit->begin();
    bool finite = true;
    for (int64_t image = first; image < end; image++) {
        slide_image(job, image, copy);
        finite = finite && is_finite(job->src, image_values(p), image);
    }
    p->unit->end();
    job->nonfinite[block] = !finite;
}

/* ---- weight gradients ------------------------------------------------------------------------ */

/* A block's sums: [kernel row][outputs][span]. */
static float *block_sums(const conv_job *job, int64_t block) {
    const conv_bf16 *p = job->p;
    return (float *)(void *)((char *)job->args->scratch + (size_t)p->threads * p->thread_bytes +
                             (size_t)block * p->block_bytes);
}

static uint16_t *turned_memory(const conv_job *job) {
    return (uint16_t *)(void *)(thread_memory(job) + job->p->copy_bytes + job->p->pairs_bytes);
}

/* dout of an image as [outputs][positions]. Between its rows zeros stay from image to image. */
static const uint16_t *turn_dout(const conv_job *job, int64_t image) {
    const conv_bf16 *p = job->p;
    const int64_t channels = p->conv.out_channels;
    uint16_t *turned = turned_memory(job);
    const uint16_t *from = job->dout + image * dout_values(p);
    for (int64_t o = 0; o < channels; o += SIDE)
        for (int64_t y = 0; y < p->out[0]; y++)
            for (int64_t x = 0; x < p->out[1]; x += SIDE)
                ab_bf16_turn(turned + o * p->positions + y * p->line + x, p->positions,
                             from + (y * p->out[1] + x) * channels + o, channels,
                             ab_min64(SIDE, p->out[1] - x), ab_min64(SIDE, channels - o));
    return turned;
}

/* Values of the copy in pairs of those of two pixels on which positions beside each other start. */
static const uint16_t *pair_pixels(const conv_job *job, const uint16_t *copy) {
    const conv_bf16 *p = job->p;
    uint16_t *pairs = (uint16_t *)(void *)(thread_memory(job) + p->copy_bytes);
    ab_bf16_pair_up(pairs, copy, p->stride[1] * p->channels, (int64_t)(p->pairs_bytes / (2 * sizeof *pairs)));
    return pairs;
}

static void weights_image(const conv_job *job, int64_t image, uint16_t *copy, float *sums, bool continues) {
    const conv_bf16 *p = job->p;
    copy_image(job, image, copy);
    const uint16_t *pairs = pair_pixels(job, copy), *turned = turn_dout(job, image);
    ab_bf16_product m = {.a = turned,
                         .a_step = p->positions,
                         .c_step = p->span,
                         .b_step = 2 * SIDE,
                         .b_row = 4 * p->stride[1] * p->channels,
                         .inner = p->by_rows ? p->line : p->positions,
                         .rows = ab_div_up(p->conv.out_channels, p->unit->rows) * p->unit->rows,
                         .runs = p->out[0] / p->at_once,
                         .run_step = p->line,
                         .b_run = 2 * p->stride[0] * p->size[1] * p->channels,
                         .continues = continues};
    const int64_t runs = ab_div_up(p->span, RUN), parts = p->conv.window.kernel[0] * runs;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t y = part / runs, j = part % runs * RUN;
        m.b = pairs + 2 * (y * p->size[1] * p->channels + j);
        m.tiles = (int)ab_min64(AB_BF16_TILES, (p->span - j) / SIDE);
        m.c = sums + y * p->wide * p->span + j;
        fetch_next(job, job->src, image_values(p), image, part, parts);
        fetch_next(job, job->dout, dout_values(p), image, part, parts);
        p->unit->multiply(&m);
    }
}

static void weights_block(void *argument, int64_t block, int thread) {
    conv_job *job = argument;
    const conv_bf16 *p = job->p;
    int64_t first, end;
    (void)thread;
    block_range(p, block, &first, &end);
    float *sums = block_sums(job, block);
    if (first == end) memset(sums, 0, p->block_bytes);
    memset(turned_memory(job), 0, p->turned_bytes);
    uint16_t *copy = clear_copy(job);
    p->unit->begin();
    bool finite = true;
    for (int64_t image = first; image < end; image++) {
        weights_image(job, image, copy, sums, image > first);
        finite = finite && is_finite(job->src, image_values(p), image) &&
                 is_finite(job->dout, dout_values(p), image);
    }
    p->unit->end();
    job->nonfinite[block] = !finite;
}

/* Adds the blocks of images for kernel row y, in torch's layout. */
static void join_row(void *argument, int64_t y, int thread) {
    const conv_job *job = argument;
    const conv_bf16 *p = job->p;
    const int64_t in = p->channels, kh = p->conv.window.kernel[0], kw = p->conv.window.kernel[1],
                  n = p->wide * p->span;
    float *sums = block_sums(job, 0) + y * n;
    (void)thread;
    ab_vec_ops_get()->sum_parts(sums, sums, (int64_t)(p->block_bytes / sizeof *sums), (int)p->blocks, n);
    for (int64_t o = 0; o < p->conv.out_channels; o++)
        for (int64_t x = 0; x < kw; x++)
            for (int64_t i = 0; i < in; i++)
                job->args->dst[((o * in + i) * kh + y) * kw + x] = sums[o * p->span + x * in + i];
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const conv_bf16 *p = (const conv_bf16 *)base;
    const ab_pass_stored *stored = args->stored;
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    conv_job job = {.p = p, .args = args, .src = stored ? stored->src->data : args->src};
    if (weights) job.dout = stored ? stored->dout->data : args->dout;
    for (int64_t o = 0; args->bias && !weights && o < p->delivered; o++) job.bias[o] = args->bias[o];
    ab_for_prepared(p->threads, p->blocks, weights ? weights_block : slide_block, &job);
    if (weights)
        ab_for_chunks(p->blocks * (int64_t)(p->block_bytes / sizeof(float)), p->conv.window.kernel[0],
                      join_row, &job);
    for (int64_t b = 0; args->nonfinite && b < p->blocks; b++)
        if (job.nonfinite[b]) *args->nonfinite = true;
    return AB_OK;
}

static void destroy(ab_pass *pass) { free(pass); }

static void set_shape(conv_bf16 *p) {
    const ab_window *w = &p->conv.window;
    const bool data = p->kind == AB_PASS_BACKWARD_DATA, weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    p->channels = data ? p->conv.out_channels : w->channels;
    p->delivered = data ? w->channels : p->conv.out_channels;
    for (int i = 0; i < 2; i++) {
        p->image[i] = data ? w->out[i] : w->in[i];
        p->out[i] = data ? w->in[i] : w->out[i];
        p->edge[i] = data ? w->kernel[i] - 1 - w->padding[i] : w->padding[i];
        p->stride[i] = w->stride[i];
        p->size[i] = (p->out[i] - 1) * p->stride[i] + w->kernel[i];
    }
    p->by_rows = p->unit->rows == 1;
    p->at_once = p->by_rows ? 1 : p->out[0];
    if (weights && !p->by_rows) p->size[1] += p->size[1] % 2;
    p->line = p->by_rows ? p->out[1] + p->out[1] % 2 : p->size[1];
    p->run = ab_div_up(w->kernel[1] * p->channels, p->unit->inner) * p->unit->inner;
    p->span = ab_div_up(w->kernel[1] * p->channels, SIDE) * SIDE;
    p->sides = ab_div_up(p->delivered, SIDE);
    p->wide = p->sides * SIDE;
    const int64_t whole = weights      ? p->unit->inner
                          : p->by_rows ? 1
                                       : (p->sides % 2 == 0 ? 2 : 4) * SIDE,
                  last = ab_max64(p->line, ab_div_up(p->out[1], SIDE) * SIDE); /* of the last row of dout */
    if (weights)
        p->positions = ab_div_up((p->out[0] - 1) * p->line + last, whole) * whole;
    else
        p->positions = ab_div_up((p->at_once - 1) * p->size[1] + p->out[1], whole) * whole;
    p->blocks = ab_min64(p->conv.batch, MAX_IMAGE_BLOCKS);
}

/* What is read beyond the last pixel of a copy: a run of values, two positions, all positions of tiles for
 * the last kernel row. */
static void size_buffers(conv_bf16 *p) {
    const bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    const int64_t rows = p->conv.window.kernel[0], pixels = p->size[0] * p->size[1] + 2 * p->stride[1],
                  tiles = p->by_rows ? 0 : p->positions + rows * p->size[1],
                  read = ab_max64(pixels, tiles) * p->channels;
    const int64_t values = ab_div_up(read + p->run + RUN, SIDE) * SIDE;
    p->copy_bytes = ab_halves_bytes(values + p->stride[1] * p->channels + SIDE);
    if (weights) {
        p->pairs_bytes = ab_halves_bytes(2 * values);
        p->turned_bytes = ab_halves_bytes(p->wide * p->positions + SIDE);
        p->block_bytes = ab_floats_bytes(rows * p->wide * p->span);
    } else {
        p->base.packed_bytes = ab_halves_bytes(rows * p->run * p->wide);
        p->result_bytes = ab_floats_bytes(p->positions * p->wide + p->out[1] * p->delivered);
    }
    p->thread_bytes = p->copy_bytes + p->result_bytes + p->pairs_bytes + p->turned_bytes;
    p->base.scratch_bytes = (size_t)p->threads * p->thread_bytes + (size_t)p->blocks * p->block_bytes;
}

static bool few(int64_t channels) {
    return channels <= SIDE || (channels <= MOST_CHANNELS && channels % SIDE == 0);
}

/* Strides: vectors only, and not of input gradients, in which they leave gaps. */
static bool applies(const ab_pass_spec *spec, const ab_bf16_unit *unit) {
    const ab_window *w = &spec->conv.window;
    const bool strides = unit->rows == 1 && spec->kind != AB_PASS_BACKWARD_DATA,
               plain = (strides || (w->stride[0] == 1 && w->stride[1] == 1)) && w->dilation[0] == 1 &&
                       w->dilation[1] == 1 && w->padding[0] < w->kernel[0] && w->padding[1] < w->kernel[1];
    return spec->operands == &ab_format_bf16 && !spec->accumulate && plain && spec->conv.groups == 1 &&
           few(w->channels) && few(spec->conv.out_channels);
}

/* Multiply-adds of 16 sums that vectors of pairs compute for an image. */
static int64_t pair_steps(const conv_bf16 *p) {
    const int64_t rows = p->conv.window.kernel[0] * p->out[0];
    if (p->kind == AB_PASS_BACKWARD_WEIGHTS)
        return rows * p->line / 2 * p->conv.out_channels * p->span / SIDE;
    return rows * p->out[1] * p->sides * p->run / 2;
}

/* The same of fp32 vectors, which our own kernels fill. */
static int64_t fp32_steps(const conv_bf16 *p) {
    const ab_window *w = &p->conv.window;
    return p->out[0] * p->out[1] * w->kernel[0] * w->kernel[1] * w->channels * p->conv.out_channels / SIDE;
}

/* Whether the unit is faster than fp32 vectors. Tiles: a row of the kernel that is shorter than half a tile
 * wastes more than vectors do. Vectors: padding costs more than pairs save, or than their preparation takes.
 */
static bool pays(const conv_bf16 *p) {
    const ab_window *w = &p->conv.window;
    if (p->unit->rows > 1) return w->kernel[1] * w->channels >= SIDE;
    return 5 * pair_steps(p) <= 4 * fp32_steps(p);
}

ab_status ab_conv_bf16_pass(const ab_pass_spec *spec, ab_pass **pass) {
    const ab_bf16_unit *unit = ab_bf16_unit_get(spec->native);
    *pass = NULL;
    if (!unit || !applies(spec, unit)) return AB_OK;
    conv_bf16 *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a convolution of bf16 pairs");
    p->threads = ab_parallel_threads();
    p->unit = unit;
    p->kind = spec->kind;
    p->conv = spec->conv;
    p->base = (ab_pass){.takes_stored = spec->stored,
                        .pack = spec->kind == AB_PASS_BACKWARD_WEIGHTS ? NULL : pack,
                        .run = run,
                        .destroy = destroy};
    set_shape(p);
    if (!spec->native && !pays(p)) {
        free(p);
        return AB_OK;
    }
    size_buffers(p);
    ab_text_show(p->base.text, sizeof p->base.text, "rows:%s", unit->name);
    *pass = &p->base;
    return AB_OK;
}
