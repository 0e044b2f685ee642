/* Small arrays of doubles for oracles. */
#ifndef AB_TESTS_ORACLE_DOUBLES_H
#define AB_TESTS_ORACLE_DOUBLES_H

#include "oracle/op_run.h"

static inline double *oracle_doubles(int64_t n) {
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static inline double *oracle_values(const ab_tensor *tensor) {
    double *v = oracle_doubles(ab_tensor_count(tensor));
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) v[i] = oracle_get(tensor, i);
    return v;
}

/* Sums and sums of magnitudes: the fp32 error of any order of summation is below terms * u * magnitude. */
typedef struct oracle_sums {
    double *sum, *magnitude;
} oracle_sums;

static inline oracle_sums oracle_sums_open(int64_t n) {
    return (oracle_sums){oracle_doubles(n), oracle_doubles(n)};
}

static inline void oracle_sums_close(oracle_sums *sums) {
    free(sums->sum);
    free(sums->magnitude);
}

static inline void oracle_add(oracle_sums to, int64_t i, double term) {
    to.sum[i] += term;
    to.magnitude[i] += fabs(term);
}

/* Every element of the tensor is the exact sum within (terms + 2) u magnitude and one rounding. */
static inline void oracle_sums_check(const op_run *r, const char *what, const ab_tensor *tensor,
                                     oracle_sums exact, int64_t terms) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        op_run_near(r, what, tensor, i, exact.sum[i], (double)(terms + 2) * ORACLE_U32 * exact.magnitude[i]);
}

#endif
