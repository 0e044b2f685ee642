/* Inner loops of convolutions that deliver few channels: the channels of one pixel are the lanes of one 8-lane vector,
 * whatever the width of the machine's vectors, which is where library kernels made for 16 channels and more waste lanes.
 * Compiled once per CPU level (vec_conv.c).
 *
 * Internal to kernels/; narrow.c is the only caller. */
#ifndef AB_KERNELS_VEC_CONV_H
#define AB_KERNELS_VEC_CONV_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_NARROW = 8 };

/* One output row: out[x][0..channels) = bias + sum over kernel row r and j < run of in[r * row_step + x * step + j] *
 * weights[r][j][0..8). Lanes behind `channels` of the last pixel are not written if `last`. */
typedef struct ab_narrow_row {
    const float *in, *weights, *bias; /* bias: 8 values */
    float *out;
    int64_t pixels, channels, rows, run, row_step, step;
    int last;
} ab_narrow_row;

/* One row of output gradients against one kernel row: sum[x * step + k][0..8) += sum over j < run of
 * dout[x][j] * weights[k][j][0..8), for every kernel column k < columns. */
typedef struct ab_narrow_scatter {
    const float *dout, *weights;
    float *sum;
    int64_t pixels, columns, run, step;
} ab_narrow_scatter;

/* Weight gradients of one image: dweight[r][j][0..8) += sum over pixels (y, x) of
 * in[(y * stride) * row + r * row_step + x * step + j] * dout[y][x][0..8). Lanes behind `channels` hold garbage. */
typedef struct ab_narrow_image {
    const float *in, *dout;
    float *dweight;
    int64_t height, width, channels; /* of dout */
    int64_t rows, run;               /* kernel rows; kernel columns times input channels */
    int64_t image_step, row_step, step;
} ab_narrow_image;

typedef struct ab_vec_conv {
    void (*row)(const ab_narrow_row *job);
    void (*scatter)(const ab_narrow_scatter *job);
    void (*weights)(const ab_narrow_image *job);
} ab_vec_conv;

const ab_vec_conv *ab_vec_conv_get(void);

AB_END_DECLS

#endif
