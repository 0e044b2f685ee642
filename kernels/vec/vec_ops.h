/* Loops over fp32 arrays, compiled once per CPU level (vec_ops.c, vec_conv.c) and chosen at each call by
 * ab_isa_get(). Elementwise results have the same bits at every level; sums may differ in the last place.
 *
 * Internal to kernels/. No threading and no stored formats here: callers split the work and convert. */
#ifndef AB_KERNELS_VEC_VEC_OPS_H
#define AB_KERNELS_VEC_VEC_OPS_H

#include "kernels/core/shape.h"

AB_BEGIN_DECLS

enum { AB_SQUARE_LANES = 16 };

typedef struct ab_vec_ops {
    /* Elementwise, n values; out may be an input. */
    void (*relu)(float *out, const float *a, const float *unused, int64_t n);
    void (*relu_backward)(float *din, const float *out, const float *dout, int64_t n);
    void (*add)(float *out, const float *a, const float *b, int64_t n);

    /* The same on fp16 or bf16 bit patterns, used when no observer is attached; `infinity` is the bit
     * pattern of inf. Same bits as widening, computing and narrowing, quieted NaNs included. */
    void (*relu_bits)(uint16_t *out, const uint16_t *a, const uint16_t *unused, uint16_t infinity, int64_t n);
    void (*relu_backward_bits)(uint16_t *din, const uint16_t *out, const uint16_t *dout, uint16_t infinity,
                               int64_t n);

    /* Whether all n values are finite; finite_bits takes fp16 or bf16 bit patterns, `infinity` is that of
     * inf. */
    bool (*finite)(const float *x, int64_t n);
    bool (*finite_bits)(const uint16_t *x, uint16_t infinity, int64_t n);

    /* lane[i % AB_SQUARE_LANES] += (x[i] * factor)^2: the product rounded to fp32, its square and the sums in
     * double. */
    void (*squares)(double *lane, const float *x, float factor, int64_t n);

    /* out[k] = parts[k] + parts[step + k] + ..., `count` of them, added in order in double. */
    void (*sum_parts)(float *out, const float *parts, int64_t step, int count, int64_t n);

    /* sum[c] = sum over rows of `channels` values, contiguous. */
    void (*column_sums)(const float *x, int64_t rows, int64_t channels, float *sum);

    /* One image of a pooling layer: in [height, width, channels], out likewise. */
    void (*max_pool)(const ab_window *window, const float *in, float *out);
    void (*max_pool_backward)(const ab_window *window, const float *in, const float *dout, float *din);
    void (*avg_pool)(const ab_window *window, bool count_pad, const float *in, float *out);
    void (*avg_pool_backward)(const ab_window *window, bool count_pad, const float *dout, float *din);

    /* dst [columns, rows] = transpose of src [rows, columns] */
    void (*transpose)(float *dst, const float *src, int64_t rows, int64_t columns);
    void (*transpose_codes)(uint16_t *dst, const uint16_t *src, int64_t rows, int64_t columns);
} ab_vec_ops;

/* The loops of the CPU level in force (isa.h). */
const ab_vec_ops *ab_vec_ops_get(void);

AB_END_DECLS

#endif
