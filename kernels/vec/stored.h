/* The formats that vector loops read and write themselves.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_VEC_STORED_H
#define AB_KERNELS_VEC_STORED_H

typedef enum ab_stored { AB_STORED_FP32, AB_STORED_FP16, AB_STORED_BF16, AB_STORED_COUNT } ab_stored;

#endif
