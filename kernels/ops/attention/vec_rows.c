/* The loops of vec_rows.h. Sums use 16 lanes, which are joined as a binary tree, and double across spans, as
 * in kernels/vec/vec_math.c; values past the end of a row are made such that they change nothing. */
#include "kernels/ops/attention/vec_rows.h"

#include "kernels/core/elementary.h"
#include "kernels/core/elementary64.h"
#include "kernels/vec/vec_wide.h"

#include <stdbool.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

/* PART: rows at a time; SPAN: values added in fp32 before the sum goes on in double. */
enum { STEP = AB_SCORES_STEP, VECS = STEP / LANES, PART = 64, SPAN = 1024 };

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* A row: n values that take part, in `end` values of whole steps, of `all`. */
typedef struct row {
    float *value;
    int64_t n, end, all;
} row;

static inline int64_t whole_steps(int64_t n) { return (n + STEP - 1) / STEP * STEP; }

static inline row row_at(const ab_score_rows *x, int64_t r) {
    const int64_t n = smaller(x->keys, x->seen + r * x->slope);
    return (row){x->value + r * x->step, n, whole_steps(n), whole_steps(x->keys)};
}

static inline void fill(float *value, int64_t from, int64_t to, float with) {
    for (int64_t j = from; j < to; j++) value[j] = with;
}

/* Zeros in the steps behind those of the row. */
static inline void clear_behind(row r) {
    for (int64_t at = r.end; at < r.all; at += LANES) wide_store(r.value + at, wide_zero());
}

/* Sets what follows the row in its last step. */
static inline void pad(row r, float with) {
    for (int64_t at = r.end - LANES; at + LANES > r.n; at -= LANES)
        wide_store_behind(r.value + at, wide_set(with), r.n > at ? (int)(r.n - at) : 0);
}

static inline void pad_rows(const ab_score_rows *x, float with) {
    for (int64_t i = 0; i < x->rows; i++) pad(row_at(x, i), with);
}

/* Sum of lanes 0..15. */
static inline double join(wide *sums) {
    for (int width = VECS / 2; width > 0; width /= 2)
        for (int v = 0; v < width; v++) sums[v] = wide_add(sums[v], sums[v + width]);
    return (double)wide_join(sums[0]);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The largest value of whole steps that is no NaN; -inf if there is none. */
static inline float row_max(row r) {
    wide most[VECS];
    for (int v = 0; v < VECS; v++) most[v] = wide_set(-INFINITY);
    for (int64_t i = 0; i < r.end; i += STEP)
        for (int v = 0; v < VECS; v++) most[v] = wide_larger(wide_load(r.value + i + v * LANES), most[v]);
    for (int width = VECS / 2; width > 0; width /= 2)
        for (int v = 0; v < width; v++) most[v] = wide_larger(most[v], most[v + width]);
    return wide_largest(most[0]);
}

/* value = exp(value - shift); zeros behind, as of -inf. */
static inline void exp_shifted(row r, float shift) {
    enum { HALF = STEP / 2 };
    float *value = r.value;
    const bool half = r.end - r.n >= HALF;
    const int64_t whole = half ? r.end - STEP : r.end;
    for (int64_t i = 0; i < whole; i += STEP) {
#pragma omp simd
        for (int k = 0; k < STEP; k++) value[i + k] = ab_expf(value[i + k] - shift);
    }
    if (!half) return;
#pragma omp simd
    for (int k = 0; k < HALF; k++) value[whole + k] = ab_expf(value[whole + k] - shift);
    for (int at = HALF / LANES * LANES; at < STEP; at += LANES)
        wide_store_behind(value + whole + at, wide_zero(), at < HALF ? HALF - at : 0);
}

/* Sum of the row, or of its products with `factor`; NULL or not is a constant of every caller. */
static AB_FORCE_INLINE double row_sum(row r, const float *factor) {
    double total = 0.0;
    for (int64_t first = 0; first < r.end; first += SPAN) {
        const int64_t end = smaller(first + SPAN, r.end);
        wide sums[VECS];
        for (int v = 0; v < VECS; v++) sums[v] = wide_zero();
        for (int64_t i = first; i < end; i += STEP)
            for (int v = 0; v < VECS; v++) {
                const int64_t at = i + v * LANES;
                const wide value = wide_load(r.value + at);
                sums[v] = wide_add(sums[v], factor ? wide_mul(wide_load(factor + at), value) : value);
            }
        total += join(sums);
    }
    return total;
}

static inline void scale(row r, float factor) {
    const wide by = wide_set(factor), zero = wide_zero();
    for (int64_t i = 0; i < r.end; i += LANES)
        wide_store(r.value + i, wide_add(wide_mul(wide_load(r.value + i), by), zero));
}

/* A row without a finite or infinite maximum: nothing but -inf, or NaN among that. */
static float masked_row(row r) {
    float value = 0.0f;
    for (int64_t j = 0; j < r.n; j++)
        if (isnan(r.value[j])) value = NAN;
    fill(r.value, 0, r.n, value);
    return isnan(value) ? NAN : -INFINITY;
}

/* Whether a row's sum of exponentials is usual: its largest value gave 1. */
static inline bool is_usual(double total) { return total >= 1.0 && total <= DBL_MAX; }

/* factor = 1 / total and, where log_sum is wanted, shift + log(total) of rows whose total is usual. */
static void finish_sums(const float *shift, const double *total, int64_t rows, float *factor,
                        float *log_sum) {
#pragma omp simd
    for (int64_t i = 0; i < rows; i++) factor[i] = (float)(1.0 / total[i]);
    if (!log_sum) return;
#pragma omp simd
    for (int64_t i = 0; i < rows; i++)
        log_sum[i] = (float)((double)shift[i] + ab_log(is_usual(total[i]) ? total[i] : 1.0));
}

/* A row whose total is not usual. */
static void finish_unusual(row r, float shift, double total, float *log_sum) {
    const bool masked = shift == -INFINITY;
    const float sum = masked ? masked_row(r) : (float)((double)shift + ab_log(total));
    pad(r, 0.0f);
    if (log_sum) *log_sum = sum;
}

static void softmax_part(const ab_score_rows *x, float *log_sum) {
    float shift[PART], factor[PART];
    double total[PART];
    pad_rows(x, -INFINITY);
    for (int64_t i = 0; i < x->rows; i++) shift[i] = row_max(row_at(x, i));
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        if (shift[i] != -INFINITY) exp_shifted(r, shift[i]);
    }
    for (int64_t i = 0; i < x->rows; i++)
        total[i] = shift[i] != -INFINITY ? row_sum(row_at(x, i), NULL) : 0.0;
    finish_sums(shift, total, x->rows, factor, log_sum);
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        if (shift[i] != -INFINITY) scale(r, factor[i]);
        if (!is_usual(total[i])) finish_unusual(r, shift[i], total[i], log_sum ? log_sum + i : NULL);
        clear_behind(r);
    }
}

static ab_score_rows part_of(const ab_score_rows *x, int64_t first) {
    ab_score_rows part = *x;
    part.value += first * x->step;
    part.rows = smaller(PART, x->rows - first);
    part.seen += first * x->slope;
    return part;
}

static void softmax(const ab_score_rows *x, float *log_sum) {
    for (int64_t first = 0; first < x->rows; first += PART) {
        const ab_score_rows part = part_of(x, first);
        softmax_part(&part, log_sum ? log_sum + first : NULL);
    }
}

static void softmax_again(const ab_score_rows *x, const float *log_sum) {
    pad_rows(x, -INFINITY);
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        if (log_sum[i] == -INFINITY)
            fill(r.value, 0, r.end, 0.0f);
        else
            exp_shifted(r, log_sum[i]);
        if (!(fabsf(log_sum[i]) <= FLT_MAX)) pad(r, 0.0f);
        clear_behind(r);
    }
}

/* ---- gradient -------------------------------------------------------------------------------- */

static void gradient_part(const ab_score_rows *x, const float *p) {
    float dot[PART];
    pad_rows(x, 0.0f);
    for (int64_t i = 0; i < x->rows; i++) dot[i] = (float)row_sum(row_at(x, i), p + i * x->step);
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        const float *weight = p + i * x->step;
        const wide shift = wide_set(dot[i]);
        for (int64_t j = 0; j < r.end; j += LANES)
            wide_store(r.value + j, wide_mul(wide_load(weight + j), wide_sub(wide_load(r.value + j), shift)));
        if (!(fabsf(dot[i]) <= FLT_MAX)) pad(r, 0.0f);
        clear_behind(r);
    }
}

static void gradient(const ab_score_rows *x, const float *p) {
    for (int64_t first = 0; first < x->rows; first += PART) {
        const ab_score_rows part = part_of(x, first);
        gradient_part(&part, p + first * x->step);
    }
}

extern const ab_vec_rows PASTE(ab_vec_rows_, AB_ISA_SUFFIX);
const ab_vec_rows PASTE(ab_vec_rows_, AB_ISA_SUFFIX) = {
    .softmax = softmax, .softmax_again = softmax_again, .gradient = gradient};
