/* The loops of vec_rows.h. Sums use 16 lanes, which are joined as a binary tree, and double across spans, as
 * in kernels/vec/vec_math.c; values past the end of a row are made such that they change nothing. */
#include "kernels/ops/attention/vec_rows.h"

#include "kernels/core/elementary64.h"
#include "kernels/vec/vec_exp.h"

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

/* Vector `at` of the row, its lanes behind the row those of `otherwise`. */
static inline wide load_row(row r, int64_t at, wide otherwise) {
    const wide value = wide_load(r.value + at);
    return at + LANES <= r.n ? value : wide_first_or(value, (int)(r.n - at), otherwise);
}

/* The largest value that is no NaN; -inf if there is none. */
static inline float row_max(row r) {
    const wide least = wide_set(-INFINITY);
    wide most = least;
    for (int64_t at = 0; at < r.n; at += LANES) most = wide_larger(load_row(r, at, least), most);
    return wide_largest(most);
}

/* Zeros from vector `at` on in the whole steps of all keys. Of a constant compilers make a call of memset,
 * which takes longer. */
static inline void clear_from(row r, int64_t at) {
    const wide zero = wide_set((float)(r.n < 0));
    for (; at < r.all; at += LANES) wide_store(r.value + at, zero);
}

#if defined(__AVX2__)

/* Makes exp(value - shift) of vector `at`, which is returned; zeros behind the row. */
static AB_FORCE_INLINE wide exp_vector(row r, int64_t at, wide shift) {
    wide e = wide_exp(wide_sub(load_row(r, at, shift), shift));
    if (at + LANES > r.n) e = wide_first_or(e, (int)(r.n - at), wide_zero());
    wide_store(r.value + at, e);
    return e;
}

/* value = exp(value - shift), zeros in whole steps behind the row. Returns their sum. */
static inline double exp_row(row r, float shift) {
    const wide by = wide_set(shift);
    double total = 0.0;
    int64_t at = 0;
    for (int64_t first = 0; first < r.n; first += SPAN) {
        const int64_t end = smaller(first + SPAN, r.n);
        wide sums[VECS];
        for (int v = 0; v < VECS; v++) sums[v] = wide_zero();
        for (; at + STEP <= end; at += STEP)
            for (int v = 0; v < VECS; v++) sums[v] = wide_add(sums[v], exp_vector(r, at + v * LANES, by));
        for (int v = 0; v < VECS && at < end; v++, at += LANES)
            sums[v] = wide_add(sums[v], exp_vector(r, at, by));
        total += join(sums);
    }
    clear_from(r, at);
    return total;
}

#else

static inline double exp_row(row r, float shift) {
    double total = 0.0;
    wide_exps(r.value, r.value, shift, r.n);
    fill(r.value, r.n, r.all, 0.0f);
    for (int64_t first = 0; first < r.end; first += SPAN) {
        wide sums[VECS];
        for (int v = 0; v < VECS; v++) sums[v] = wide_zero();
        for (int64_t i = first; i < smaller(first + SPAN, r.end); i += STEP)
            for (int v = 0; v < VECS; v++) sums[v] = wide_add(sums[v], wide_load(r.value + i + v * LANES));
        total += join(sums);
    }
    return total;
}

#endif

/* Sum of the row's products with `factor`. */
static inline double row_dot(row r, const float *factor) {
    double total = 0.0;
    for (int64_t first = 0; first < r.end; first += SPAN) {
        const int64_t end = smaller(first + SPAN, r.end);
        wide sums[VECS];
        for (int v = 0; v < VECS; v++) sums[v] = wide_zero();
        for (int64_t i = first; i < end; i += STEP)
            for (int v = 0; v < VECS; v++) {
                const int64_t at = i + v * LANES;
                sums[v] = wide_add(sums[v], wide_mul(wide_load(factor + at), wide_load(r.value + at)));
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
    clear_from(r, r.end);
    if (log_sum) *log_sum = sum;
}

static void softmax_part(const ab_score_rows *x, float *log_sum) {
    float shift[PART], factor[PART];
    double total[PART];
    for (int64_t i = 0; i < x->rows; i++) shift[i] = row_max(row_at(x, i));
    for (int64_t i = 0; i < x->rows; i++)
        total[i] = shift[i] != -INFINITY ? exp_row(row_at(x, i), shift[i]) : 0.0;
    finish_sums(shift, total, x->rows, factor, log_sum);
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        if (shift[i] != -INFINITY) scale(r, factor[i]);
        if (!is_usual(total[i])) finish_unusual(r, shift[i], total[i], log_sum ? log_sum + i : NULL);
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
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        if (log_sum[i] == -INFINITY)
            clear_from(r, 0);
        else
            (void)exp_row(r, log_sum[i]);
    }
}

/* ---- gradient -------------------------------------------------------------------------------- */

static void gradient_part(const ab_score_rows *x, const float *p) {
    float dot[PART];
    pad_rows(x, 0.0f);
    for (int64_t i = 0; i < x->rows; i++) dot[i] = (float)row_dot(row_at(x, i), p + i * x->step);
    for (int64_t i = 0; i < x->rows; i++) {
        const row r = row_at(x, i);
        const float *weight = p + i * x->step;
        const wide shift = wide_set(dot[i]);
        for (int64_t j = 0; j < r.end; j += LANES)
            wide_store(r.value + j, wide_mul(wide_load(weight + j), wide_sub(wide_load(r.value + j), shift)));
        if (!(fabsf(dot[i]) <= FLT_MAX)) pad(r, 0.0f);
        clear_from(r, r.end);
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
