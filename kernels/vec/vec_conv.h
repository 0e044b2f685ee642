/* Inner loops of convolutions with few output channels. The channels of one pixel are the lanes of one
 * 8-lane vector, independent of the vector width of the CPU; in forward passes of rows of at least a vector,
 * pixels are the lanes instead. Library kernels for 16 channels and more waste lanes here. Compiled once per
 * CPU level (vec_conv.c).
 *
 * Internal to kernels/; narrow.c is the only caller. */
#ifndef AB_KERNELS_VEC_VEC_CONV_H
#define AB_KERNELS_VEC_VEC_CONV_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_NARROW = 8 };

/* One output row: out[x][0..channels) = bias + sum over k < taps of in[offset[k] + x] * weights[k][0..8). */
typedef struct ab_narrow_row {
    const float *in, *weights, *bias; /* bias: 8 values */
    const int64_t *offset;
    float *out;
    uint16_t *codes; /* in place of out: what it rounds to, where the loops round; else NULL */
    bool is_bf16;    /* to bf16, not fp16 */
    int64_t taps, pixels, channels;
    int64_t room; /* floats from out to the end of its image; lanes past a pixel's channels may be written
                   * up to there */
} ab_narrow_row;

/* One row of output gradients against one kernel row: sum[x * step + k][0..8) += sum over j < run of
 * dout[x][j] * weight(k, j)[0..8) for every kernel column k < columns. Kernel columns are taken in chunks of
 * ab_narrow_chunk(); weights are [chunk][j][column of the chunk][8]. */
typedef struct ab_narrow_scatter {
    const float *dout, *weights;
    float *sum;
    int64_t pixels, columns, run, step;
} ab_narrow_scatter;

/* How many of the `left` remaining kernel columns the next chunk has. */
static inline int64_t ab_narrow_chunk(int64_t left, int64_t step) {
    if (step > 1 || left < 3) return 1;
    return left < 5 ? 3 : 5;
}

/* Weight gradients of one image: dweight[r][j][0..8) += sum over pixels (y, x) of
 * in[(y * stride) * row + r * row_step + x * step + j] * dout[y][x][0..8). Lanes past `channels` are
 * undefined. */
typedef struct ab_narrow_image {
    const float *in, *dout;
    const uint16_t *codes; /* in place of dout: its halves, where the loops read them; else NULL */
    bool is_bf16;          /* those are bf16, not fp16 */
    float *dweight;
    float *
        bias; /* [8]: sums of dout over pixels, in the order of column_sums (vec_ops.h); NULL if not wanted */
    int64_t height, width, channels; /* of dout */
    int64_t rows, run;               /* kernel rows; kernel columns times input channels */
    int64_t image_step, row_step, step;
} ab_narrow_image;

typedef struct ab_vec_conv {
    /* out[x][0..channels) = from[x][0..channels) of 8, for `pixels` pixels; room as in ab_narrow_row. */
    void (*keep)(float *out, const float *from, int64_t pixels, int64_t channels, int64_t room);
    void (*row)(const ab_narrow_row *job);
    void (*scatter)(const ab_narrow_scatter *job);
    void (*weights)(const ab_narrow_image *job);
    bool reads_codes; /* weights: also halves */
    /* Whether row() rounds results of so many pixels and channels. */
    bool (*rounds)(int64_t pixels, int64_t channels);
} ab_vec_conv;

/* The loops of the CPU level in force (isa.h). */
const ab_vec_conv *ab_vec_conv_get(void);

AB_END_DECLS

#endif
