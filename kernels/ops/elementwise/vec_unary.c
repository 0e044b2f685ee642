/* Loops of vec_unary.h, compiled once per CPU level; formulas: elementwise.h. No fused multiply-add. */
#include "kernels/ops/elementwise/vec_unary.h"

#include "kernels/vec/isa.h"

#define AB_UNARY(id, reads, attributes)                                                                      \
    static void id##_values(float *out, const float *x, ab_scalars s, int64_t n) {                           \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = ab_##id##_value(x[i], s);               \
    }                                                                                                        \
    static void id##_slopes(float *din, const float *v, const float *dout, ab_scalars s, int64_t n) {        \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) din[i] = dout[i] * ab_##id##_slope(v[i], s);     \
    }
#include "kernels/ops/elementwise/unary.def"
#undef AB_UNARY

AB_ISA_TABLE(ab_vec_unary) = {
#define AB_UNARY(id, reads, attributes) .id = {id##_values, id##_slopes},
#include "kernels/ops/elementwise/unary.def"
#undef AB_UNARY
};
