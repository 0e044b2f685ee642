/* Direct convolutions of 16 and more channels, one image at a time, from and to images as they are in memory;
 * see pass.h. An input gradient is the convolution of the output gradient with the turned kernel. */
#include "kernels/ops/product/pass.h"

#include "kernels/core/text.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/image_pieces.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_direct.h"
#include "kernels/vec/vec_ops.h"

#include <stdlib.h>
#include <string.h>

AB_BY_ISA(ab_vec_direct, ab_vec_direct)

/* MAX_IMAGE_BLOCKS: weight gradients are summed in at most this many blocks of images, then over the blocks
 * in order. MOST_WEIGHTS: more do not stay in the L2 cache from one image to the next. CACHED: floats of
 * weights, or of rows of images, that loops go over again and again, within the L1 cache. FEW_PIXELS,
 * FEW_VALUES: fewer in a row, or under a kernel row, leave too few sums in registers. */
enum { MAX_IMAGE_BLOCKS = 8, MOST_WEIGHTS = 128 * 1024, CACHED = 6 * 1024, FEW_PIXELS = 6, FEW_VALUES = 16 };

typedef struct direct {
    ab_pass base;
    ab_conv conv;
    ab_pass_kind kind;
    const ab_vec_direct *loops;
    ab_image_pieces pieces;
    int threads;
    /* the convolution that is run: rows and columns of images, of the kernel; zeros before an image */
    int64_t in[2], out[2], kernel[2], stride[2], edge[2];
    int64_t channels, delivered, block; /* of an image; of the result; of the latter computed at once */
    int64_t run, head, tail; /* values under a kernel row; of those outside the image (vec_direct.h) */
    int64_t blocks;          /* of images */
    size_t block_bytes;
} direct;

typedef struct direct_job {
    const direct *p;
    const ab_pass_args *args;
} direct_job;

static int64_t weights_of(const direct *p) { return p->kernel[0] * p->run * p->delivered; }

/* Packed: [block of result channels][kernel row][run][channel of the block]. */
static int64_t packed_at(const direct *p, int64_t ky, int64_t kx, int64_t from, int64_t to) {
    const int64_t row = to / p->block * p->kernel[0] + ky;
    return (row * p->run + kx * p->channels + from) * p->block + to % p->block;
}

static ab_status pack(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const direct *p = (const direct *)base;
    const bool turned = p->kind == AB_PASS_BACKWARD_DATA;
    const int64_t kh = p->kernel[0], kw = p->kernel[1];
    const float *from = weights;
    float *to = packed;
    (void)scratch;
    for (int64_t o = 0; o < p->conv.out_channels; o++)
        for (int64_t i = 0; i < p->conv.window.channels; i++)
            for (int64_t y = 0; y < kh; y++)
                for (int64_t x = 0; x < kw; x++)
                    to[turned ? packed_at(p, kh - 1 - y, kw - 1 - x, o, i) : packed_at(p, y, x, i, o)] =
                        *from++;
    return AB_OK;
}

/* ---- forward and input gradients ------------------------------------------------------------- */

/* Kernel rows [first, end) for result row y, without those outside the image. */
static void clip_rows(const direct *p, int64_t y, int64_t *first, int64_t *end) {
    const int64_t top = p->edge[0] - y * p->stride[0];
    *first = ab_max64(*first, top);
    *end = ab_max64(*first, ab_min64(*end, p->in[0] + top));
}

/* Rows of the next image, and where those of this one's results are rounded to, come nearer. */
static void ask_row(const direct *p, const ab_pass_args *args, int64_t image, int64_t y) {
    ab_piece_ask(&p->pieces, args, AB_PIECE_SRC, image + 1, p->conv.batch, y, p->out[0]);
    ab_piece_ask(&p->pieces, args, AB_PIECE_DST, image, p->conv.batch, y, p->out[0]);
}

/* A block of channels from kernel rows [k0, k1). image: to ask for; -1: it was. */
static void sum_rows(const direct *p, const ab_pass_args *args, int64_t image, const ab_direct_row *job,
                     const float *in, float *out, int64_t k0, int64_t k1) {
    const int64_t in_row = p->in[1] * p->channels, out_row = p->out[1] * p->delivered;
    ab_direct_row row = *job;
    row.continues = k0 > 0;
    for (int64_t y = 0; y < p->out[0]; y++) {
        int64_t first = k0, end = k1;
        if (image >= 0) ask_row(p, args, image, y);
        clip_rows(p, y, &first, &end);
        row.rows = end - first;
        if (row.rows == 0 && row.continues) continue;
        row.in = in + (row.rows > 0 ? y * p->stride[0] + first - p->edge[0] : 0) * in_row;
        row.weights = job->weights + first * p->run * p->block;
        row.out = out + y * out_row;
        p->loops->row(&row);
    }
}

static void sum_image(void *argument, int64_t image, int thread) {
    const direct *p = ((const direct_job *)argument)->p;
    const ab_pass_args *args = ((const direct_job *)argument)->args;
    (void)thread;
    const float *in = ab_piece_read(&p->pieces, args, AB_PIECE_SRC, image);
    float *out = ab_piece_target(&p->pieces, args, image);
    const int64_t kh = p->kernel[0], row_weights = p->run * p->block;
    const int64_t rows = ab_min64(kh, ab_max64(1, CACHED / row_weights)); /* of the kernel at once */
    ab_direct_row job = {.block = p->block,
                         .pixels = p->out[1],
                         .step = p->stride[1] * p->channels,
                         .out_step = p->delivered,
                         .row_step = p->in[1] * p->channels,
                         .run = p->run,
                         .head = p->head,
                         .tail = p->tail};
    for (int64_t c = 0; c < p->delivered; c += p->block) {
        job.weights = (const float *)args->weights + c * kh * p->run;
        job.bias = args->bias ? args->bias + c : NULL;
        for (int64_t k = 0; k < kh; k += rows)
            sum_rows(p, args, c + k > 0 ? -1 : image, &job, in, out + c, k, ab_min64(k + rows, kh));
    }
    ab_piece_store(&p->pieces, args, image, out);
}

/* ---- weight gradients ------------------------------------------------------------------------ */

/* A block's sums, in the layout of packed weights. */
static float *block_sums(const direct *p, const ab_pass_args *args, int64_t block) {
    char *after = (char *)args->scratch + (size_t)p->threads * p->pieces.thread_bytes;
    return (float *)(void *)(after + (size_t)block * p->block_bytes);
}

/* Rows [y0, y1) of dout, all kernel rows and channels. */
static void sum_band(const direct *p, const float *in, const float *dout, float *sums, int64_t y0,
                     int64_t y1) {
    const int64_t in_row = p->in[1] * p->channels, dout_row = p->out[1] * p->delivered;
    ab_direct_weights job = {.block = p->block,
                             .image_step = p->stride[0] * in_row,
                             .dout_row = dout_row,
                             .pixels = p->out[1],
                             .step = p->stride[1] * p->channels,
                             .dout_step = p->delivered,
                             .run = p->run,
                             .head = p->head,
                             .tail = p->tail,
                             .unit = p->head + p->tail > 0 ? p->channels : p->run};
    for (int64_t c = 0; c < p->delivered; c += p->block)
        for (int64_t k = 0; k < p->kernel[0]; k++) {
            const int64_t top = p->edge[0] - k,
                          last = p->in[0] - 1 + top; /* over the stride: rows of results */
            const int64_t first = ab_max64(y0, top > 0 ? ab_div_up(top, p->stride[0]) : 0),
                          end = last < 0 ? 0 : ab_min64(y1, last / p->stride[0] + 1);
            job.height = end - first;
            if (job.height <= 0) continue;
            job.in = in + (first * p->stride[0] - top) * in_row;
            job.dout = dout + first * dout_row + c;
            job.sums = sums + packed_at(p, k, 0, 0, c);
            p->loops->weights(&job);
        }
}

static void sum_block(void *argument, int64_t block, int thread) {
    const direct *p = ((const direct_job *)argument)->p;
    const ab_pass_args *args = ((const direct_job *)argument)->args;
    float *sums = block_sums(p, args, block);
    const int64_t first = p->conv.batch * block / p->blocks, end = p->conv.batch * (block + 1) / p->blocks,
                  row = p->stride[0] * p->in[1] * p->channels + p->out[1] * p->delivered,
                  band = ab_max64(1, CACHED / row);
    (void)thread;
    memset(sums, 0, p->block_bytes);
    for (int64_t image = first; image < end; image++) {
        const float *in = ab_piece_read(&p->pieces, args, AB_PIECE_SRC, image);
        const float *dout = ab_piece_read(&p->pieces, args, AB_PIECE_DOUT, image);
        for (int64_t y = 0; y < p->out[0]; y += band) {
            const int64_t part = y / band, parts = ab_div_up(p->out[0], band);
            ab_piece_ask(&p->pieces, args, AB_PIECE_SRC, image + 1, p->conv.batch, part, parts);
            ab_piece_ask(&p->pieces, args, AB_PIECE_DOUT, image + 1, p->conv.batch, part, parts);
            sum_band(p, in, dout, sums, y, ab_min64(y + band, p->out[0]));
        }
    }
}

/* Adds the image blocks of a block of channels, in torch's layout. */
static void join_channels(void *argument, int64_t c, int thread) {
    const direct *p = ((const direct_job *)argument)->p;
    const ab_pass_args *args = ((const direct_job *)argument)->args;
    const int64_t n = p->kernel[0] * p->run * p->block, taps = p->kernel[0] * p->kernel[1];
    float *sums = block_sums(p, args, 0) + c * n, *to = args->dst + c * p->block * p->channels * taps;
    (void)thread;
    ab_vec_ops_get()->sum_parts(sums, sums, (int64_t)(p->block_bytes / sizeof *sums), (int)p->blocks, n);
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t i = 0; i < p->channels; i++)
            for (int64_t o = 0; o < p->block; o++) to[(o * p->channels + i) * taps + tap] = *sums++;
}

/* ---- the pass ---------------------------------------------------------------------------------- */

static ab_status run(ab_pass *base, const ab_pass_args *args) {
    const direct *p = (const direct *)base;
    direct_job job = {p, args};
    if (p->kind != AB_PASS_BACKWARD_WEIGHTS) {
        ab_for_prepared(p->threads, p->conv.batch, sum_image, &job);
        return AB_OK;
    }
    ab_for_prepared(p->threads, p->blocks, sum_block, &job);
    ab_for_chunks(weights_of(p) * p->blocks, p->delivered / p->block, join_channels, &job);
    return AB_OK;
}

static void destroy(ab_pass *pass) { free(pass); }

static void set_shape(direct *p, const ab_pass_spec *spec) {
    const ab_window *w = &spec->conv.window;
    const bool data = spec->kind == AB_PASS_BACKWARD_DATA;
    p->channels = data ? spec->conv.out_channels : w->channels;
    p->delivered = data ? w->channels : spec->conv.out_channels;
    for (int i = 0; i < 2; i++) {
        p->in[i] = data ? w->out[i] : w->in[i];
        p->out[i] = data ? w->in[i] : w->out[i];
        p->kernel[i] = w->kernel[i];
        p->stride[i] = w->stride[i];
        p->edge[i] = data ? w->kernel[i] - 1 - w->padding[i] : w->padding[i];
    }
    const int64_t behind = (p->out[1] - 1) * p->stride[1] + p->kernel[1] - p->edge[1] - p->in[1];
    p->run = p->kernel[1] * p->channels;
    p->head = p->edge[1] * p->channels;
    p->tail = ab_max64(0, behind) * p->channels;
    p->block = p->loops->block(p->delivered);
}

/* Whether the loops can run what set_shape found: at most one pixel at either end of a row reaches beyond the
 * image, and none at both ends. */
static bool fits(const direct *p) {
    return p->block > 0 && p->edge[0] >= 0 && p->edge[1] >= 0 && p->edge[1] <= p->stride[1] &&
           2 * p->edge[1] < p->kernel[1] && p->out[1] >= FEW_PIXELS && p->run >= FEW_VALUES &&
           weights_of(p) <= MOST_WEIGHTS;
}

static bool applies(const ab_pass_spec *spec) {
    const ab_window *w = &spec->conv.window;
    const bool strided = w->stride[0] > 1 || w->stride[1] > 1;
    return spec->operands == &ab_format_fp32 && !spec->accumulate && spec->conv.groups == 1 &&
           w->dilation[0] == 1 && w->dilation[1] == 1 && !(strided && spec->kind == AB_PASS_BACKWARD_DATA);
}

static void size_buffers(direct *p, const ab_pass_spec *spec) {
    p->threads = ab_parallel_threads();
    p->pieces = ab_image_pieces_of(spec, 0);
    p->base.scratch_bytes = (size_t)p->threads * p->pieces.thread_bytes;
    if (spec->kind != AB_PASS_BACKWARD_WEIGHTS) {
        p->base.packed_bytes = ab_floats_bytes(weights_of(p));
        return;
    }
    p->blocks = ab_min64(p->conv.batch, MAX_IMAGE_BLOCKS);
    p->block_bytes = ab_floats_bytes(weights_of(p));
    p->base.scratch_bytes += (size_t)p->blocks * p->block_bytes;
}

ab_status ab_direct_pass(const ab_pass_spec *spec, ab_pass **pass) {
    *pass = NULL;
    if (!applies(spec)) return AB_OK;
    direct *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "cannot allocate a direct convolution");
    p->conv = spec->conv;
    p->kind = spec->kind;
    p->loops = ab_vec_direct_get();
    set_shape(p, spec);
    if (!fits(p)) {
        free(p);
        return AB_OK;
    }
    size_buffers(p, spec);
    p->base.pack = spec->kind == AB_PASS_BACKWARD_WEIGHTS ? NULL : pack;
    p->base.run = run;
    p->base.destroy = destroy;
    p->base.keeps_nonfinite = true;
    p->base.takes_stored = spec->stored;
    ab_text_show(p->base.text, sizeof p->base.text, "direct:%s", ab_isa_name(ab_isa_get()));
    *pass = &p->base;
    return AB_OK;
}
