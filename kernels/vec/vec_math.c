/* The loops of vec_math.h, compiled once per CPU level. No operation is fused and every sum has a fixed
 * order, so that all levels give the same bits. Elementary functions: kernels/core/elementary.h. */
#include "kernels/vec/vec_math.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_exp.h"

/* ---- element by element ---------------------------------------------------------------------- */

/* A function of two arrays. */
#define MAP(name, expression)                                                                                \
    static void name(float *out, const float *a, const float *b, int64_t n) {                                \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = (expression);                           \
    }

MAP(tanh_backward, b[i] * ((1.0f - a[i]) * (1.0f + a[i])))
MAP(sigmoid_backward, b[i] * (a[i] * (1.0f - a[i])))

/* Of pieces in the L1 cache: compilers make more instructions of ab_expf than wide_exp has. */
enum { PIECE = 64 };

/* A function of x = a[i], of e = exp(argument), and of b[i] for two arrays. */
#define MAP_EXP(name, argument, expression)                                                                  \
    static inline void name##_piece(float *out, const float *a, const float *b, int n) {                     \
        _Alignas(64) float power[PIECE];                                                                     \
        (void)b;                                                                                             \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                                    \
            const float x = a[i];                                                                            \
            power[i] = (argument);                                                                           \
        }                                                                                                    \
        wide_exps(power, power, 0.0f, n);                                                                    \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                                    \
            const float x = a[i], e = power[i];                                                              \
            out[i] = (expression);                                                                           \
        }                                                                                                    \
    }                                                                                                        \
    static void name(float *out, const float *a, const float *b, int64_t n) {                                \
        int64_t i = 0;                                                                                       \
        for (; i + PIECE <= n; i += PIECE) name##_piece(out + i, a + i, b ? b + i : b, PIECE);               \
        if (i < n) name##_piece(out + i, a + i, b ? b + i : b, (int)(n - i));                                \
    }

static void exp_map(float *out, const float *a, const float *unused, int64_t n) {
    (void)unused;
    wide_exps_long(out, a, 0.0f, n);
}

MAP_EXP(tanh_map, 2.0f * ab_magnitude(x), ab_tanh_from(x, e))
MAP_EXP(sigmoid_map, -ab_magnitude(x), ab_f_sigmoid_from(x, e))
MAP_EXP(silu, -ab_magnitude(x), x *ab_f_sigmoid_from(x, e))
MAP_EXP(silu_backward, -ab_magnitude(x), b[i] * ab_f_silu_slope_from(x, e))
MAP_EXP(gelu, -0.5f * (x * x), x *ab_f_normal_below(x, e))
MAP_EXP(gelu_backward, -0.5f * (x * x), b[i] * ab_f_gelu_slope_from(x, e))
MAP_EXP(gelu_tanh, -ab_magnitude(ab_f_gelu_argument(x)), x *ab_f_sigmoid_from(x, e))
MAP_EXP(gelu_tanh_backward, -ab_magnitude(ab_f_gelu_argument(x)), b[i] * ab_f_gelu_tanh_slope_from(x, e))

static void affine(float *out, const float *a, float factor, float shift, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = a[i] * factor + shift;
}

static void scale_wide(float *out, const float *a, double factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = (float)((double)a[i] * factor);
}

static void add_scaled(float *sum, const float *a, float factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) sum[i] += factor * a[i];
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Lanes of a sum at every level; number of values added in fp32 before the sum continues in double. */
enum { SUM_LANES = 16, VECS = SUM_LANES / VEC_LANES, SPAN = 1024 };

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Values of vector v in the 16 at `left` from the end. */
static inline int in_vector(int64_t left, int v) {
    int64_t n = left - (int64_t)v * VEC_LANES;
    return n >= VEC_LANES ? VEC_LANES : n > 0 ? (int)n : 0;
}

/* Sum of lanes 0..15 as a binary tree. */
static inline double join(vec *sums) {
    for (int width = VECS / 2; width > 0; width /= 2)
        for (int v = 0; v < width; v++) sums[v] = vec_add(sums[v], sums[v + width]);
    return (double)vec_join(sums[0]);
}

static inline void clear(vec *sums) {
    for (int v = 0; v < VECS; v++) sums[v] = vec_set(0.0f);
}

/* Sum of `term`(vector at i, of n values) over `count` values: spans are added in double. `vec term` may use
 * `at` and `n`. */
#define SUM_ROW(total, count, term)                                                                          \
    do {                                                                                                     \
        for (int64_t first = 0; first < (count); first += SPAN) {                                            \
            vec sums[VECS];                                                                                  \
            int64_t end = smaller(first + SPAN, (count)), i = first;                                         \
            clear(sums);                                                                                     \
            for (; i + SUM_LANES <= end; i += SUM_LANES)                                                     \
                for (int v = 0; v < VECS; v++) {                                                             \
                    int64_t at = i + v * VEC_LANES;                                                          \
                    const int n = VEC_LANES;                                                                 \
                    sums[v] = vec_add(sums[v], term);                                                        \
                }                                                                                            \
            for (int v = 0; i < end && v < VECS; v++) {                                                      \
                int64_t at = i + v * VEC_LANES;                                                              \
                const int n = in_vector(end - i, v);                                                         \
                if (n > 0) sums[v] = vec_add(sums[v], term);                                                 \
            }                                                                                                \
            (total) += join(sums);                                                                           \
        }                                                                                                    \
    } while (0)

static double row_sum(const float *x, int64_t count) {
    double total = 0.0;
    SUM_ROW(total, count, vec_load(x + at, n));
    return total;
}

static double row_sum_wide(const float *x, int64_t count) {
    double lane[SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= count; i += SUM_LANES) {
#pragma omp simd
        for (int k = 0; k < SUM_LANES; k++) lane[k] += (double)x[i + k];
    }
    for (; i < count; i++) lane[i % SUM_LANES] += (double)x[i];
    for (int width = SUM_LANES / 2; width > 0; width /= 2)
        for (int k = 0; k < width; k++) lane[k] += lane[k + width];
    return lane[0];
}

static double row_dot(const float *a, const float *b, int64_t count) {
    double total = 0.0;
    SUM_ROW(total, count, vec_mul(vec_load(a + at, n), vec_load(b + at, n)));
    return total;
}

static inline vec square_of_distance(const float *x, vec mean, int n) {
    vec d = vec_sub(vec_load(x, n), mean);
    return vec_mul(d, d);
}

/* Lanes past the end of a row load 0 and would add mean^2, so the remainder is added separately.
 */
static double row_m2(const float *x, float mean, int64_t count) {
    double total = 0.0;
    int64_t whole = count - count % SUM_LANES;
    vec m = vec_set(mean);
    SUM_ROW(total, whole, square_of_distance(x + at, m, n));
    for (int64_t i = whole; i < count; i++) total += (double)((x[i] - mean) * (x[i] - mean));
    return total;
}

static void row_moments(const float *x, int64_t n, float *mean, float *m2) {
    *mean = (float)(row_sum(x, n) / (double)n);
    *m2 = (float)row_m2(x, *mean, n);
}

/* Of independent maxima: max is associative except for the sign of zero. */
static float row_max(const float *x, int64_t n) {
    enum { APART = 4 };
    wide best[APART];
    int64_t i = 0;
    for (int v = 0; v < APART; v++) best[v] = wide_set(-INFINITY);
    for (; i + APART * LANES <= n; i += APART * LANES)
        for (int v = 0; v < APART; v++) best[v] = wide_larger(wide_load(x + i + v * LANES), best[v]);
    for (; i + LANES <= n; i += LANES) best[0] = wide_larger(wide_load(x + i), best[0]);
    for (int v = 1; v < APART; v++) best[0] = wide_larger(best[0], best[v]);
    float largest = wide_largest(best[0]);
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static void exp_shifted(float *out, const float *x, float shift, int64_t n) {
    wide_exps_long(out, x, shift, n);
}

static double exp_sum(float *out, const float *x, float shift, int64_t n) {
    double total = 0.0;
    for (int64_t first = 0; first < n; first += SPAN) {
        int64_t end = smaller(first + SPAN, n);
        exp_shifted(out + first, x + first, shift, end - first);
        total += row_sum(out + first, end - first);
    }
    return total;
}

static void softmax_backward(float *dx, const float *y, const float *dy, float dot, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
}

static void log_softmax_backward(float *dx, const float *y, const float *dy, float sum, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - ab_expf(y[i]) * sum;
}

/* ---- normalisation of rows ------------------------------------------------------------------- */

static void row_normalise(float *y, const float *x, const ab_row_norm *norm, const float *gamma,
                          const float *beta, int64_t n) {
    const float mean = norm->mean, rstd = norm->rstd;
    if (beta) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i];
    }
}

static void row_gradient_sums(const float *dy, const float *x, const ab_row_norm *norm, const float *gamma,
                              float *dgamma, float *dbeta, double sum[2], int64_t count) {
    const float mean = norm->mean, rstd = norm->rstd;
    const vec m = vec_set(mean), r = vec_set(rstd);
    sum[0] = sum[1] = 0.0;
    SUM_ROW(sum[0], count, vec_mul(vec_load(dy + at, n), vec_load(gamma + at, n)));
    SUM_ROW(sum[1], count,
            vec_mul(vec_mul(vec_load(dy + at, n), vec_load(gamma + at, n)),
                    vec_mul(vec_sub(vec_load(x + at, n), m), r)));
    if (dgamma) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
    }
    if (dbeta) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) dbeta[i] += dy[i];
    }
}

static void row_gradient(float *dx, const float *dy, const float *x, const ab_row_norm *norm,
                         const float *gamma, float mean_dy, float mean_dot, int64_t n) {
    const float mean = norm->mean, rstd = norm->rstd;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = rstd * (dy[i] * gamma[i] - mean_dy - (x[i] - mean) * rstd * mean_dot);
}

static void channel_gradient(float *dx, const float *dy, const float *x, int64_t rows, int64_t channels,
                             const float *const factors[4]) {
    const float *slope = factors[AB_SLOPE], *mean = factors[AB_MEAN], *pull = factors[AB_PULL],
                *shift = factors[AB_SHIFT];
    for (int64_t at = 0; at < rows * channels; at += channels)
#pragma omp simd
        for (int64_t c = 0; c < channels; c++)
            dx[at + c] = dy[at + c] * slope[c] - (x[at + c] - mean[c]) * pull[c] - shift[c];
}

/* ---- lstm ------------------------------------------------------------------------------------ */

static void lstm_step(float *gates, const float *before, float *c, float *h, int64_t n) {
    float *gi = gates, *gf = gates + n, *gg = gates + 2 * n, *go = gates + 3 * n;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float i = ab_f_sigmoid(gi[k]), f = ab_f_sigmoid(gf[k]), g = ab_tanhf(gg[k]), o = ab_f_sigmoid(go[k]);
        c[k] = f * before[k] + i * g;
        h[k] = o * ab_tanhf(c[k]);
        gi[k] = i;
        gf[k] = f;
        gg[k] = g;
        go[k] = o;
    }
}

static void lstm_step_backward(float *dgates, float *dc, const float *dh, const float *gates,
                               const float *before, const float *c, int64_t n) {
    const float *gi = gates, *gf = gates + n, *gg = gates + 2 * n, *go = gates + 3 * n;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float t = ab_tanhf(c[k]), d = dc[k] + dh[k] * go[k] * ((1.0f - t) * (1.0f + t));
        dgates[k] = d * gg[k] * (gi[k] * (1.0f - gi[k]));
        dgates[n + k] = d * before[k] * (gf[k] * (1.0f - gf[k]));
        dgates[2 * n + k] = d * gi[k] * ((1.0f - gg[k]) * (1.0f + gg[k]));
        dgates[3 * n + k] = dh[k] * t * (go[k] * (1.0f - go[k]));
        dc[k] = d * gf[k];
    }
}

static void gru_step(float *sums, float *h, int64_t n) {
    float *sr = sums, *sz = sums + n, *sn = sums + 2 * n;
    const float *state = sums + 3 * n;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float r = ab_f_sigmoid(sr[k]), z = ab_f_sigmoid(sz[k]), g = ab_tanhf(sn[k] + r * state[k]);
        h[k] = (1.0f - z) * g + z * h[k];
        sr[k] = r;
        sz[k] = z;
        sn[k] = g;
    }
}

static void gru_step_backward(float *const d[2], float *dh, const float *sums, const float *before,
                              int64_t n) {
    const float *sr = sums, *sz = sums + n, *sn = sums + 2 * n, *state = sums + 3 * n;
    float *d_in = d[0], *d_state = d[1];
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float r = sr[k], z = sz[k], g = sn[k], by_n = dh[k] * (1.0f - z) * ((1.0f - g) * (1.0f + g));
        float by_r = by_n * state[k] * (r * (1.0f - r)), by_z = dh[k] * (before[k] - g) * (z * (1.0f - z));
        d_in[k] = d_state[k] = by_r;
        d_in[n + k] = d_state[n + k] = by_z;
        d_in[2 * n + k] = by_n;
        d_state[2 * n + k] = by_n * r;
        dh[k] *= z;
    }
}

/* ---- dropout --------------------------------------------------------------------------------- */

enum { PHILOX_BLOCKS = 64 }; /* Philox blocks per call */

/* word[4 k + j] = word j of block `first` + k: Philox4x32-10 as in kernels/core/rng.c, many counters in
 * parallel. */
static void dropout_words(const ab_dropout *d, uint32_t first, uint32_t *word) {
    uint32_t c[4][PHILOX_BLOCKS], key0 = (uint32_t)d->seed, key1 = (uint32_t)(d->seed >> 32);
    for (int k = 0; k < PHILOX_BLOCKS; k++) {
        c[0][k] = first + (uint32_t)k;
        c[1][k] = d->instance;
        c[2][k] = d->step;
        c[3][k] = AB_RNG_DROPOUT;
    }
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
#pragma omp simd
        for (int k = 0; k < PHILOX_BLOCKS; k++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c[0][k], p1 = (uint64_t)0xCD9E8D57u * c[2][k];
            c[0][k] = (uint32_t)(p1 >> 32) ^ c[1][k] ^ key0;
            c[1][k] = (uint32_t)p1;
            c[2][k] = (uint32_t)(p0 >> 32) ^ c[3][k] ^ key1;
            c[3][k] = (uint32_t)p0;
        }
    }
    for (int k = 0; k < PHILOX_BLOCKS; k++)
        for (int j = 0; j < 4; j++) word[4 * k + j] = c[j][k];
}

static void dropout(float *out, const float *x, const ab_dropout *d, int64_t first, int64_t n) {
    uint32_t word[4 * PHILOX_BLOCKS];
    for (int64_t done = 0; done < n;) {
        int64_t block = (first + done) / 4, skip = (first + done) % 4;
        int64_t count = smaller(n - done, 4 * PHILOX_BLOCKS - skip);
        dropout_words(d, (uint32_t)block, word);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            float kept = x[done + i] * d->scale;
            out[done + i] = word[skip + i] >> 8 >= d->threshold ? kept : 0.0f;
        }
        done += count;
    }
}

AB_ISA_TABLE(ab_vec_math) = {.exp = exp_map,
                             .tanh = tanh_map,
                             .tanh_backward = tanh_backward,
                             .sigmoid = sigmoid_map,
                             .sigmoid_backward = sigmoid_backward,
                             .silu = silu,
                             .silu_backward = silu_backward,
                             .gelu = gelu,
                             .gelu_backward = gelu_backward,
                             .gelu_tanh = gelu_tanh,
                             .gelu_tanh_backward = gelu_tanh_backward,
                             .affine = affine,
                             .scale_wide = scale_wide,
                             .add_scaled = add_scaled,
                             .row_max = row_max,
                             .row_sum = row_sum,
                             .row_sum_wide = row_sum_wide,
                             .row_dot = row_dot,
                             .exp_shifted = exp_shifted,
                             .exp_sum = exp_sum,
                             .softmax_backward = softmax_backward,
                             .log_softmax_backward = log_softmax_backward,
                             .row_moments = row_moments,
                             .row_normalise = row_normalise,
                             .row_gradient_sums = row_gradient_sums,
                             .row_gradient = row_gradient,
                             .channel_gradient = channel_gradient,
                             .lstm_step = lstm_step,
                             .lstm_step_backward = lstm_step_backward,
                             .gru_step = gru_step,
                             .gru_step_backward = gru_step_backward,
                             .dropout = dropout};
