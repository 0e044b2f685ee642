/* An inf or NaN operand of a product must affect exactly the results that read it. Libraries do not guarantee
 * that: a kernel that multiplies a neighbouring value by a padding zero turns an inf into NaN (oneDNN 2.6
 * with AMX); one that skips zeros loses 0 * inf.
 *
 * Callers of a library product therefore check the operands first, at the cost of one read. If all are
 * finite, the result is used as it is, including overflows of its sums. Otherwise the result is checked here,
 * whatever its implementation: a result that reads a non-finite value must be non-finite (inf or NaN, as the
 * arithmetic gives), and a result that reads none must not be non-finite because of one. Wrong results are
 * recomputed in fp32 in the order of reference.c; no others are written.
 *
 * Padding is not read: taps outside the image contribute no term. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_NONFINITE_H
#define AB_KERNELS_OPS_PRODUCT_NONFINITE_H

#include "kernels/ops/product/gemm.h"
#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* One product of a convolution or linear layer, operands as stored. */
typedef struct ab_product_data {
    ab_pass_kind kind;
    const ab_conv *conv;
    const ab_tensor *in;      /* forward, backward weights */
    const ab_tensor *weights; /* forward, backward data; torch's layout */
    const ab_tensor *dout;    /* backward data, backward weights */
    const float *bias;        /* forward; NULL if none */
    bool weights_finite;      /* all weights are finite; ignored for backward weights */
    float *dst;               /* the result, checked and corrected in place */
} ab_product_data;

/* Checks a product with non-finite operands. Uses all threads; results do not depend on their number. */
void ab_repair_product(const ab_product_data *data);

/* The same for a matrix product with beta = 0, on the calling thread. */
void ab_repair_gemm(const ab_gemm *gemm);

/* Whether n stored values of `format` (fp32, fp16 or bf16) are all finite. */
bool ab_values_finite(const void *values, const ab_format *format, int64_t n);

/* The same on all threads. */
bool ab_array_finite(const void *values, const ab_format *format, int64_t n);

AB_END_DECLS

#endif
