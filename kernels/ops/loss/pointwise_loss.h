/* Formulas of element-wise losses of an input x and a target t: value, derivatives and the constant x
 * of the least mean value over targets of a given mean, in fp32, shared by all devices. pointwise.def lists
 * them; pointwise_loss.c defines the ops. */
#ifndef AB_KERNELS_OPS_LOSS_POINTWISE_LOSS_H
#define AB_KERNELS_OPS_LOSS_POINTWISE_LOSS_H

#include "kernels/ops/elementwise/elementwise.h"

AB_FORMULA float ab_mse_value(float x, float t) { return (x - t) * (x - t); }
AB_FORMULA float ab_mse_by_x(float x, float t) { return 2.0f * (x - t); }
AB_FORMULA float ab_mse_by_t(float x, float t) { return 2.0f * (t - x); }
AB_FORMULA float ab_mse_constant(float mean) { return mean; }

/* As in torch: logarithms are clamped to at least -100, the derivative's denominator to at least 1e-12. A
 * probability outside [0, 1] gives NaN. */
AB_FORMULA float ab_bce_log(float p) {
    float y = ab_logf(p);
    return y < -100.0f ? -100.0f : y;
}
AB_FORMULA float ab_bce_value(float x, float t) {
    return (t - 1.0f) * ab_bce_log(1.0f - x) - t * ab_bce_log(x);
}
AB_FORMULA float ab_bce_by_x(float x, float t) {
    float spread = (1.0f - x) * x;
    return (x - t) / (spread < 1e-12f ? 1e-12f : spread);
}
AB_FORMULA float ab_bce_by_t(float x, float t) { return (void)t, ab_bce_log(1.0f - x) - ab_bce_log(x); }
AB_FORMULA float ab_bce_constant(float mean) { return mean; }

/* max(x, 0) - x t + log(1 + exp(-|x|)): no overflow for any x */
AB_FORMULA float ab_bce_with_logits_value(float x, float t) {
    return (x > 0.0f ? x : 0.0f) - x * t + ab_log1pf(ab_expf(-fabsf(x)));
}
AB_FORMULA float ab_bce_with_logits_by_x(float x, float t) {
    float e = ab_expf(-fabsf(x)), small = e / (1.0f + e);
    return (x > 0.0f ? 1.0f / (1.0f + e) : small) - t;
}
AB_FORMULA float ab_bce_with_logits_by_t(float x, float t) { return (void)t, -x; }
AB_FORMULA float ab_bce_with_logits_constant(float mean) {
    return ab_bce_log(mean) - ab_bce_log(1.0f - mean);
}

/* ---- loops, compiled once per CPU level (vec_pointwise.c); all levels give the same bits */

AB_BEGIN_DECLS

/* out = f(x, t), n values; out must not alias x or t. */
typedef void (*ab_loss_loop)(float *out, const float *x, const float *t, int64_t n);

/* The value and its derivatives with respect to x and t. */
typedef struct ab_loss_loops {
    ab_loss_loop value, by[2];
} ab_loss_loops;

typedef struct ab_vec_pointwise {
#define AB_POINTWISE(id) ab_loss_loops id;
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE
} ab_vec_pointwise;

AB_END_DECLS

#endif
