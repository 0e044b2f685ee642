/* Loops of pointwise_loss.h, compiled once per CPU level; formulas in the same header. No fused
 * multiply-add. */
#include "kernels/ops/loss/pointwise_loss.h"

#include "kernels/vec/isa.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#define LOOP(name)                                                                                           \
    static void name(float *out, const float *x, const float *t, int64_t n) {                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = PASTE(ab_, name)(x[i], t[i]);           \
    }
#define AB_POINTWISE(id) LOOP(id##_value) LOOP(id##_by_x) LOOP(id##_by_t)
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE

AB_ISA_TABLE(ab_vec_pointwise) = {
#define AB_POINTWISE(id) .id = {id##_value, {id##_by_x, id##_by_t}},
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE
};
