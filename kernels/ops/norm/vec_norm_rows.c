/* The loops of vec_norm_rows.h. Sums use 16 lanes, which are joined as a binary tree, and double across
 * spans, as in kernels/vec/vec_math.c. */
#include "kernels/ops/norm/vec_norm_rows.h"

#include "kernels/vec/vec_wide.h"

#include <math.h>
#include <stdbool.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

/* SPAN: values added in fp32 before the sum goes on in double. */
enum { ROWS = AB_NORM_ROWS, STEP = AB_NORM_STEP, VECS = STEP / LANES, SPAN = 1024 };

/* Sum of lanes 0..15. */
static inline double join(wide *sums) {
    for (int width = VECS / 2; width > 0; width /= 2)
        for (int v = 0; v < width; v++) sums[v] = wide_add(sums[v], sums[v + width]);
    return (double)wide_join(sums[0]);
}

/* total[r] = sum over row r of its values, or of (value - mean[r])^2; NULL or not is a constant of every
 * caller. */
static AB_FORCE_INLINE void sum_rows(const float *x, int64_t n, const float *mean, double *total) {
    for (int r = 0; r < ROWS; r++) total[r] = 0.0;
    for (int64_t first = 0; first < n; first += SPAN) {
        const int64_t end = first + SPAN < n ? first + SPAN : n;
        wide sums[ROWS][VECS];
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) sums[r][v] = wide_zero();
        for (int64_t i = first; i < end; i += STEP)
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
                for (int v = 0; v < VECS; v++) {
                    wide value = wide_load(x + r * n + i + v * LANES);
                    if (mean) {
                        value = wide_sub(value, wide_set(mean[r]));
                        value = wide_mul(value, value);
                    }
                    sums[r][v] = wide_add(sums[r][v], value);
                }
        for (int r = 0; r < ROWS; r++) total[r] += join(sums[r]);
    }
}

static void statistics(const float *x, int64_t n, double eps, float *mean, float *rstd) {
    double total[ROWS];
    sum_rows(x, n, NULL, total);
    for (int r = 0; r < ROWS; r++) mean[r] = (float)(total[r] / (double)n);
    const float by[ROWS] = {mean[0], mean[1], mean[2], mean[3]};
    sum_rows(x, n, by, total);
    for (int r = 0; r < ROWS; r++) rstd[r] = (float)(1.0 / sqrt((double)(float)total[r] / (double)n + eps));
}

static void gradient_sums(const float *dy, const float *x, const ab_row_norm *norm, const float *gamma,
                          float *dgamma, float *dbeta, double sum[2], int64_t n) {
    const wide mean = wide_set(norm->mean), rstd = wide_set(norm->rstd);
    sum[0] = sum[1] = 0.0;
    for (int64_t first = 0; first < n; first += SPAN) {
        const int64_t end = first + SPAN < n ? first + SPAN : n;
        wide plain[VECS], dot[VECS];
        for (int v = 0; v < VECS; v++) plain[v] = dot[v] = wide_zero();
        for (int64_t i = first; i < end; i += STEP)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++) {
                const int64_t at = i + v * LANES;
                const wide d = wide_load(dy + at), pulled = wide_mul(d, wide_load(gamma + at)),
                           xhat = wide_mul(wide_sub(wide_load(x + at), mean), rstd);
                plain[v] = wide_add(plain[v], pulled);
                dot[v] = wide_add(dot[v], wide_mul(pulled, xhat));
                wide_store(dgamma + at, wide_add(wide_load(dgamma + at), wide_mul(d, xhat)));
                wide_store(dbeta + at, wide_add(wide_load(dbeta + at), d));
            }
        sum[0] += join(plain);
        sum[1] += join(dot);
    }
}

extern const ab_vec_norm_rows PASTE(ab_vec_norm_rows_, AB_ISA_SUFFIX);
const ab_vec_norm_rows PASTE(ab_vec_norm_rows_, AB_ISA_SUFFIX) = {.statistics = statistics,
                                                                  .gradient_sums = gradient_sums};
