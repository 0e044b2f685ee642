/* Max pooling of one image on the bit patterns of a half format, for windows that neither overlap nor reach
 * into padding: no conversions, since a maximum is one of its operands. Compiled once per CPU level
 * (vec_pool.c).
 *
 * Internal to kernels/; max_pool2d.c is the only caller. */
#ifndef AB_KERNELS_VEC_VEC_POOL_H
#define AB_KERNELS_VEC_VEC_POOL_H

#include "kernels/core/shape.h"

AB_BEGIN_DECLS

/* Both return false, and write nothing, for images whose order is not that of their bits: in [height, width,
 * channels] has a NaN or a zero of negative sign, or dout a NaN. `infinity`: the bit pattern of inf. */
typedef struct ab_vec_pool {
    bool (*max_pool_bits)(const ab_window *window, uint16_t infinity, const uint16_t *in, uint16_t *out);
    /* The gradient goes to the first maximum of each window in row order. */
    bool (*max_pool_backward_bits)(const ab_window *window, uint16_t infinity, const uint16_t *in,
                                   const uint16_t *dout, uint16_t *din);
} ab_vec_pool;

AB_END_DECLS

#endif
