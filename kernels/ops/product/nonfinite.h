/* Infinities and NaNs of a product's operands must stand in those results that read them, and in no other.
 * Libraries do not promise that: a kernel that multiplies a neighbour's value by a padding zero turns an
 * infinity there into NaN here (oneDNN 2.6 with AMX), one that skips zeros loses 0 * inf.
 *
 * So whoever takes a product from a library looks at the operands first, which costs one read of them. All
 * finite: the result is taken as it is, overflows of its sums included. Otherwise the result is checked here,
 * whatever made it: a result must be non-finite if it reads a non-finite value (inf or NaN is left to the
 * arithmetic), and one that reads none must not have caught one. What is wrong is computed again in fp32 in
 * the order of reference.h; nothing else is written.
 *
 * Padding is not read: taps that reach outside an image contribute no term. Internal to kernels/, but for the
 * counts. */
#ifndef AB_KERNELS_OPS_PRODUCT_NONFINITE_H
#define AB_KERNELS_OPS_PRODUCT_NONFINITE_H

#include "kernels/ops/product/gemm.h"
#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* What was corrected since the process began. */
typedef struct ab_repair_counts {
    int64_t products; /* with at least one corrected result */
    int64_t cleared;  /* results that were inf or NaN and read none */
    int64_t restored; /* results that read inf or NaN and were finite */
} ab_repair_counts;

/* Of all products of this process. */
ab_repair_counts ab_repair_totals(void);

/* One product of a convolution or linear layer, its operands as they are stored. */
typedef struct ab_product_data {
    ab_pass_kind kind;
    const ab_conv *conv;
    const ab_tensor *in;      /* forward, backward weights */
    const ab_tensor *weights; /* forward, backward data; torch's layout */
    const ab_tensor *dout;    /* backward data, backward weights */
    const float *bias;        /* forward; NULL if there is none */
    bool weights_finite;      /* all of them; anything for backward weights */
    float *dst;               /* the result, checked and corrected in place */
} ab_product_data;

/* Checks a product whose operands are not all finite. Uses all threads; results do not depend on their
 * number. */
void ab_repair_product(const ab_product_data *data);

/* The same for a matrix product with beta = 0, on this thread. */
void ab_repair_gemm(const ab_gemm *gemm);

/* Whether n stored values of `format` (fp32, fp16 or bf16) are all finite. */
bool ab_values_finite(const void *values, const ab_format *format, int64_t n);

/* The same on all threads. */
bool ab_array_finite(const void *values, const ab_format *format, int64_t n);

AB_END_DECLS

#endif
