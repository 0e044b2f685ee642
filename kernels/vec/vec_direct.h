/* Inner loops of convolutions whose results have a multiple of 16 channels: images as they are in memory,
 * channels last, against packed weights; the sums of a tile stay in registers. Where the kernel reaches
 * beyond the edge of an image, nothing is multiplied. Compiled once per CPU level (vec_direct.c). Each result
 * is one chain of multiply-adds, fused where the CPU level has FMA, in an order that the shape alone
 * determines: its bits do not depend on the vector width.
 *
 * Internal to kernels/; direct.c is the only caller. */
#ifndef AB_KERNELS_VEC_VEC_DIRECT_H
#define AB_KERNELS_VEC_VEC_DIRECT_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Channels of the result are computed in blocks of the width that ab_vec_direct.block gives, a multiple of
 * this. */
enum { AB_DIRECT_STEP = 16 };

/* One row of a block of output channels: out[x][0..block) = start + sum over r < rows, j < run of
 * in[r * row_step + x * step + j] * weights[r][j][0..block). The first `head` values of a run lie before the
 * image for the first pixel, the last `tail` ones behind it for the last pixel, and are left out there. At
 * the first pixel `in` points to value `head` of its run. start: 0, `bias`, or what is in out. */
typedef struct ab_direct_row {
    const float *in, *weights, *bias; /* bias: of the block, or NULL */
    float *out;
    int64_t block;
    int64_t pixels, step, out_step; /* steps from one pixel to the next */
    int64_t rows, row_step, run, head, tail;
    bool continues; /* start from what is in out */
} ab_direct_row;

/* Weight gradients of a block of output channels and one kernel row, over some rows of output pixels:
 * sums[j][0..block) += sum over y < height, x of in[y * image_step + x * step + j] * dout[y][x][0..block),
 * for j < run, with head and tail as above: `in` points to value `head` of the first pixel's run. `unit`
 * divides run, head and tail. */
typedef struct ab_direct_weights {
    const float *in, *dout;
    float *sums;
    int64_t block;
    int64_t height, image_step, dout_row;
    int64_t pixels, step, dout_step;
    int64_t run, head, tail, unit;
} ab_direct_weights;

typedef struct ab_vec_direct {
    /* Block of output channels for a result of `channels`; 0: this level has no loops. */
    int64_t (*block)(int64_t channels);
    void (*row)(const ab_direct_row *job);
    void (*weights)(const ab_direct_weights *job);
} ab_vec_direct;

AB_END_DECLS

#endif
