/* Formulas of the element-wise ops, shared by all devices: value and derivatives in fp32. unary.def and
 * binary.def list them; unary_ops.c and binary.c define the ops.
 *
 * The derivative of a unary function takes the input or the result, as its row says. Functions used in
 * hand-written losses and norms overflow where half arithmetic overflows; nothing here prevents it. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H
#define AB_KERNELS_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "kernels/core/elementary.h"

#if defined(__CUDACC__)
#define AB_FORMULA static __host__ __device__ __forceinline__
#else
#define AB_FORMULA static inline
#endif

/* Attributes as fp32: clamp has {min, max}, scale {factor}. */
typedef struct ab_scalars {
    float a, b;
} ab_scalars;

/* ---- unary functions: value(x, s), slope(x or y, s) ------------------------------------------ */

AB_FORMULA float ab_neg_value(float x, ab_scalars s) { return (void)s, -x; }
AB_FORMULA float ab_neg_slope(float x, ab_scalars s) { return (void)s, (void)x, -1.0f; }

AB_FORMULA float ab_exp_value(float x, ab_scalars s) { return (void)s, ab_expf(x); }
AB_FORMULA float ab_exp_slope(float y, ab_scalars s) { return (void)s, y; }

AB_FORMULA float ab_log_value(float x, ab_scalars s) { return (void)s, ab_logf(x); }
AB_FORMULA float ab_log_slope(float x, ab_scalars s) { return (void)s, 1.0f / x; }

AB_FORMULA float ab_sqrt_value(float x, ab_scalars s) { return (void)s, sqrtf(x); }
AB_FORMULA float ab_sqrt_slope(float y, ab_scalars s) { return (void)s, 1.0f / (2.0f * y); }

AB_FORMULA float ab_rsqrt_value(float x, ab_scalars s) { return (void)s, 1.0f / sqrtf(x); }
AB_FORMULA float ab_rsqrt_slope(float y, ab_scalars s) { return (void)s, -0.5f * (y * y * y); }

AB_FORMULA float ab_square_value(float x, ab_scalars s) { return (void)s, x * x; }
AB_FORMULA float ab_square_slope(float x, ab_scalars s) { return (void)s, 2.0f * x; }

/* torch: slope 0 at 0 */
AB_FORMULA float ab_abs_value(float x, ab_scalars s) { return (void)s, fabsf(x); }
AB_FORMULA float ab_abs_slope(float x, ab_scalars s) {
    return (void)s, (float)(x > 0.0f) - (float)(x < 0.0f);
}

/* NaN propagates; the slope is 1 at the limits */
AB_FORMULA float ab_clamp_value(float x, ab_scalars s) { return x < s.a ? s.a : x > s.b ? s.b : x; }
AB_FORMULA float ab_clamp_slope(float x, ab_scalars s) { return x >= s.a && x <= s.b ? 1.0f : 0.0f; }

AB_FORMULA float ab_scale_value(float x, ab_scalars s) { return x * s.a; }
AB_FORMULA float ab_scale_slope(float x, ab_scalars s) { return (void)x, s.a; }

/* ---- binary functions: value(a, b), derivatives with respect to a and b ---------------------- */

AB_FORMULA float ab_add_value(float a, float b) { return a + b; }
AB_FORMULA float ab_add_by_a(float a, float b) { return (void)a, (void)b, 1.0f; }
AB_FORMULA float ab_add_by_b(float a, float b) { return (void)a, (void)b, 1.0f; }

AB_FORMULA float ab_sub_value(float a, float b) { return a - b; }
AB_FORMULA float ab_sub_by_a(float a, float b) { return (void)a, (void)b, 1.0f; }
AB_FORMULA float ab_sub_by_b(float a, float b) { return (void)a, (void)b, -1.0f; }

AB_FORMULA float ab_mul_value(float a, float b) { return a * b; }
AB_FORMULA float ab_mul_by_a(float a, float b) { return (void)a, b; }
AB_FORMULA float ab_mul_by_b(float a, float b) { return (void)b, a; }

AB_FORMULA float ab_div_value(float a, float b) { return a / b; }
AB_FORMULA float ab_div_by_a(float a, float b) { return (void)a, 1.0f / b; }
AB_FORMULA float ab_div_by_b(float a, float b) { return -(a / b) / b; }

#endif
