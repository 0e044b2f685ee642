/* Max pooling of one image for windows that neither overlap nor reach into padding, of fp32 and of the bit
 * patterns of a half format: those need no conversion, since a maximum is one of its operands. Compiled once
 * per CPU level (vec_pool.c).
 *
 * Internal to kernels/; max_pool2d.c is the only caller. */
#ifndef AB_KERNELS_VEC_VEC_POOL_H
#define AB_KERNELS_VEC_VEC_POOL_H

#include "kernels/core/shape.h"

AB_BEGIN_DECLS

/* in [height, width, channels]. All return false for images that they do not support: in has a NaN; in
 * halves, too, a zero of negative sign, or dout has a NaN. The result is undefined then. `infinity`: the bit
 * pattern of inf. A gradient goes to the first maximum of its window in row order, other pixels get 0. */
typedef struct ab_vec_pool {
    bool (*max_pool)(const ab_window *window, const float *in, float *out);
    /* after_relu: `in` is the output of a relu, and din the gradient of its input. */
    bool (*max_pool_backward)(const ab_window *window, bool after_relu, const float *in, const float *dout,
                              float *din);
    bool (*max_pool_bits)(const ab_window *window, uint16_t infinity, const uint16_t *in, uint16_t *out);
    bool (*max_pool_backward_bits)(const ab_window *window, bool after_relu, uint16_t infinity,
                                   const uint16_t *in, const uint16_t *dout, uint16_t *din);
} ab_vec_pool;

AB_END_DECLS

#endif
