/* The loops of vec_ops.h, compiled once per CPU level. Every sum has a fixed order that does not depend on
 * the vector length and nothing is fused, so that all levels give the same bits. */
#include "kernels/vec/vec_ops.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_sums.h"

enum { FINITE_BLOCK = 4096 };

static int lanes_left(int64_t left) { return left < VEC_LANES ? (int)left : VEC_LANES; }

/* ---- element by element ---------------------------------------------------------------------- */

/* NaN passes through, as in torch. */
static void relu(float *out, const float *a, const float *unused, int64_t n) {
    (void)unused;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = a[i] <= 0.0f ? 0.0f : a[i];
}

static void relu_backward(float *din, const float *out, const float *dout, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) din[i] = out[i] <= 0.0f ? 0.0f : dout[i];
}

static void add(float *out, const float *a, const float *b, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

/* Signed comparisons and masks: AVX2 has no unsigned comparisons, and compilers then use scalar code. */
static inline int16_t quieten(int16_t code, int16_t infinity) {
    const int16_t lowest = (int16_t)(infinity & -infinity), quiet = (int16_t)(lowest >> 1);
    const int16_t size = (int16_t)(code & 0x7fff), nan = (int16_t)(-(size > infinity));
    return (int16_t)(code | (nan & quiet));
}

/* All ones where the code's value is above 0 or NaN. */
static inline int16_t above_zero(int16_t code, int16_t infinity) {
    const int16_t size = (int16_t)(code & 0x7fff);
    return (int16_t)(-(code > 0) | -(size > infinity));
}

static void relu_bits(uint16_t *out, const uint16_t *a, const uint16_t *unused, uint16_t infinity,
                      int64_t n) {
    const int16_t inf = (int16_t)infinity;
    (void)unused;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const int16_t code = (int16_t)a[i];
        out[i] = (uint16_t)(quieten(code, inf) & above_zero(code, inf));
    }
}

static void relu_backward_bits(uint16_t *din, const uint16_t *out, const uint16_t *dout, uint16_t infinity,
                               int64_t n) {
    const int16_t inf = (int16_t)infinity;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        din[i] = (uint16_t)(quieten((int16_t)dout[i], inf) & above_zero((int16_t)out[i], inf));
}

/* The largest magnitude of a block, as a bit pattern: no branch inside, an exit between blocks. */
static bool finite(const float *x, int64_t n) {
    for (int64_t first = 0; first < n; first += FINITE_BLOCK) {
        const int64_t end = n - first < FINITE_BLOCK ? n : first + FINITE_BLOCK;
        int32_t most = 0;
#pragma omp simd reduction(max : most)
        for (int64_t i = first; i < end; i++) {
            int32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        if (most >= 0x7f800000) return false;
    }
    return true;
}

/* Maxima of 16 bits by lane: gcc reduces a loop over single ones slowly on AVX2. */
static int16_t largest_bits(const uint16_t *x, int64_t n) {
    enum { LANES16 = 128 };
    const int64_t whole = n - n % LANES16;
    int16_t lane[LANES16] = {0}, most = 0;
    for (int64_t i = 0; i < whole; i += LANES16) {
#pragma omp simd
        for (int k = 0; k < LANES16; k++) {
            const int16_t bits = (int16_t)(x[i + k] & 0x7fff);
            lane[k] = bits > lane[k] ? bits : lane[k];
        }
    }
    for (int64_t i = whole; i < n; i++) {
        const int16_t bits = (int16_t)(x[i] & 0x7fff);
        most = bits > most ? bits : most;
    }
    for (int k = 0; k < LANES16; k++) most = lane[k] > most ? lane[k] : most;
    return most;
}

static bool finite_bits(const uint16_t *x, uint16_t infinity, int64_t n) {
    for (int64_t first = 0; first < n; first += FINITE_BLOCK) {
        const int64_t end = n - first < FINITE_BLOCK ? n : first + FINITE_BLOCK;
        if (largest_bits(x + first, end - first) >= (int16_t)infinity) return false;
    }
    return true;
}

static void squares(double *lane, const float *x, float factor, int64_t n) {
    double sum[AB_SQUARE_LANES];
    int64_t i = 0;
    memcpy(sum, lane, sizeof sum);
    for (; i + AB_SQUARE_LANES <= n; i += AB_SQUARE_LANES)
        for (int k = 0; k < AB_SQUARE_LANES; k++) {
            const float value = x[i + k] * factor;
            sum[k] += (double)value * (double)value;
        }
    for (int k = 0; i < n; i++, k++) {
        const float value = x[i] * factor;
        sum[k] += (double)value * (double)value;
    }
    memcpy(lane, sum, sizeof sum);
}

static void sum_parts(float *out, const float *parts, int64_t step, int count, int64_t n) {
    double sum[64];
    for (int64_t k0 = 0; k0 < n; k0 += 64) {
        int64_t end = n - k0 < 64 ? n - k0 : 64;
        for (int64_t k = 0; k < end; k++) sum[k] = (double)parts[k0 + k];
        for (int i = 1; i < count; i++)
            for (int64_t k = 0; k < end; k++) sum[k] += (double)parts[i * step + k0 + k];
        for (int64_t k = 0; k < end; k++) out[k0 + k] = (float)sum[k];
    }
}

/* ---- sums over rows -------------------------------------------------------------------------- */

static wide column_sum(const float *x, int64_t rows, int64_t channels, int n) {
    wide sums[ROW_SUMS];
    clear_sums(sums);
    int64_t r = 0;
    for (; r + ROW_SUMS <= rows; r += ROW_SUMS)
        for (int i = 0; i < ROW_SUMS; i++)
            sums[i] = wide_add(sums[i], wide_load_first(x + (r + i) * channels, n));
    for (; r < rows; r++) sums[0] = wide_add(sums[0], wide_load_first(x + r * channels, n));
    return total_sum(sums);
}

static void column_sums(const float *x, int64_t rows, int64_t channels, float *sum) {
    for (int64_t c = 0; c < channels; c += LANES) {
        int n = columns_left(channels - c);
        wide_store_first(sum + c, column_sum(x + c, rows, channels, n), n);
    }
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* The part of a window that lies in the image: rows [y0, y1), columns [x0, x1). */
typedef struct span {
    int64_t y0, y1, x0, x1;
} span;

static inline void clip(int64_t from, int64_t size, int64_t limit, int64_t *first, int64_t *end) {
    *first = from < 0 ? 0 : from;
    *end = from + size > limit ? limit : from + size;
}

static inline span rows_of(const ab_window *w, int64_t oy) {
    span s;
    clip(oy * w->stride[0] - w->padding[0], w->kernel[0], w->in[0], &s.y0, &s.y1);
    return s;
}

static inline void columns_of(const ab_window *w, int64_t ox, span *s) {
    clip(ox * w->stride[1] - w->padding[1], w->kernel[1], w->in[1], &s->x0, &s->x1);
}

/* Whether windows do not overlap. */
static bool disjoint(const ab_window *w) {
    return w->stride[0] >= w->kernel[0] && w->stride[1] >= w->kernel[1];
}

/* Zeros pixels that backward accumulates into or that no window covers. */
static void clear_image(const ab_window *w, float *din) {
    bool covered = disjoint(w);
    for (int i = 0; i < 2; i++)
        covered = covered && w->stride[i] == w->kernel[i] && w->padding[i] == 0 &&
                  w->out[i] * w->stride[i] == w->in[i];
    if (!covered) memset(din, 0, (size_t)(w->in[0] * w->in[1] * w->channels) * sizeof *din);
}

static inline vec window_max(const float *in, const span *s, int64_t row, int64_t channels, int n) {
    vec best = vec_set(-INFINITY);
    for (int64_t y = s->y0; y < s->y1; y++)
        for (int64_t x = s->x0; x < s->x1; x++) {
            vec v = vec_load(in + y * row + x * channels, n);
            best = vec_select(vec_replaces(v, best), v, best);
        }
    return best;
}

/* Windows that overlap or are padded, or images with NaN; others: vec_pool.h. */
static void max_pool(const ab_window *w, const float *in, float *out) {
    const int64_t channels = w->channels, row = w->in[1] * channels;
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
        span s = rows_of(w, oy);
        for (int64_t ox = 0; ox < w->out[1]; ox++, out += channels) {
            columns_of(w, ox, &s);
            for (int64_t c = 0; c < channels; c += VEC_LANES) {
                int n = lanes_left(channels - c);
                vec_store(out + c, window_max(in + c, &s, row, channels, n), n);
            }
        }
    }
}

/* Per lane, the position in the window (row-major inside the image) that torch's scan selects.
 */
static inline vec winners(const float *in, const span *s, int64_t row, int64_t channels, int n) {
    vec best = vec_set(-INFINITY), winner = vec_set(0.0f);
    float position = 0.0f;
    for (int64_t y = s->y0; y < s->y1; y++)
        for (int64_t x = s->x0; x < s->x1; x++, position += 1.0f) {
            vec v = vec_load(in + y * row + x * channels, n);
            vec_mask replaces = vec_replaces(v, best);
            best = vec_select(replaces, v, best);
            winner = vec_select(replaces, vec_set(position), winner);
        }
    return winner;
}

/* Adds the gradient at the maximum; `alone`: no other window shares the pixels. */
static inline void reward(float *din, const span *s, int64_t row, int64_t channels, vec winner, vec gradient,
                          bool alone, int n) {
    float position = 0.0f;
    for (int64_t y = s->y0; y < s->y1; y++)
        for (int64_t x = s->x0; x < s->x1; x++, position += 1.0f) {
            float *at = din + y * row + x * channels;
            vec share = vec_select(vec_equal(winner, vec_set(position)), gradient, vec_set(0.0f));
            vec_store(at, alone ? share : vec_add(vec_load(at, n), share), n);
        }
}

static void max_pool_backward(const ab_window *w, const float *in, const float *dout, float *din) {
    const int64_t channels = w->channels, row = w->in[1] * channels;
    const bool alone = disjoint(w);
    clear_image(w, din);
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
        span s = rows_of(w, oy);
        for (int64_t ox = 0; ox < w->out[1]; ox++, dout += channels) {
            columns_of(w, ox, &s);
            for (int64_t c = 0; c < channels; c += VEC_LANES) {
                int n = lanes_left(channels - c);
                vec winner = winners(in + c, &s, row, channels, n);
                reward(din + c, &s, row, channels, winner, vec_load(dout + c, n), alone, n);
            }
        }
    }
}

static inline vec divisor(const ab_window *w, const span *s, bool count_pad) {
    int64_t inside = (s->y1 - s->y0) * (s->x1 - s->x0);
    return vec_set((float)(count_pad ? w->kernel[0] * w->kernel[1] : inside));
}

/* Sums each row, then the row sums: the error grows with height + width, not with their product. */
static inline vec window_sum(const float *in, const span *s, int64_t row, int64_t channels, int n) {
    vec sum = vec_set(0.0f);
    for (int64_t y = s->y0; y < s->y1; y++) {
        vec line = vec_set(0.0f);
        for (int64_t x = s->x0; x < s->x1; x++)
            line = vec_add(line, vec_load(in + y * row + x * channels, n));
        sum = vec_add(sum, line);
    }
    return sum;
}

static void avg_pool(const ab_window *w, bool count_pad, const float *in, float *out) {
    int64_t channels = w->channels, row = w->in[1] * channels;
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
        span s = rows_of(w, oy);
        for (int64_t ox = 0; ox < w->out[1]; ox++, out += channels) {
            columns_of(w, ox, &s);
            vec size = divisor(w, &s, count_pad);
            for (int64_t c = 0; c < channels; c += VEC_LANES) {
                int n = lanes_left(channels - c);
                vec_store(out + c, vec_div(window_sum(in + c, &s, row, channels, n), size), n);
            }
        }
    }
}

static inline void spread(float *din, const span *s, int64_t row, int64_t channels, vec share, bool alone,
                          int n) {
    for (int64_t y = s->y0; y < s->y1; y++)
        for (int64_t x = s->x0; x < s->x1; x++) {
            float *at = din + y * row + x * channels;
            vec_store(at, alone ? share : vec_add(vec_load(at, n), share), n);
        }
}

static void avg_pool_backward(const ab_window *w, bool count_pad, const float *dout, float *din) {
    int64_t channels = w->channels, row = w->in[1] * channels;
    bool alone = disjoint(w);
    clear_image(w, din);
    for (int64_t oy = 0; oy < w->out[0]; oy++) {
        span s = rows_of(w, oy);
        for (int64_t ox = 0; ox < w->out[1]; ox++, dout += channels) {
            columns_of(w, ox, &s);
            vec size = divisor(w, &s, count_pad);
            for (int64_t c = 0; c < channels; c += VEC_LANES) {
                int n = lanes_left(channels - c);
                spread(din + c, &s, row, channels, vec_div(vec_load(dout + c, n), size), alone, n);
            }
        }
    }
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void transpose(float *dst, const float *src, int64_t rows, int64_t columns) {
    wide_transpose(dst, rows, src, columns, rows, columns);
}

#if defined(__SSE2__)

#include <emmintrin.h>

/* The values of rows i and i + 4 in turns, as two rows; done three times this turns eight rows of eight. */
static inline void interleave_eight(__m128i *to, const __m128i *from) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        to[2 * i] = _mm_unpacklo_epi16(from[i], from[i + 4]);
        to[2 * i + 1] = _mm_unpackhi_epi16(from[i], from[i + 4]);
    }
}

static inline void turn_eight_codes(uint16_t *dst, int64_t dst_step, const uint16_t *src, int64_t src_step) {
    __m128i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) a[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + i * src_step));
    interleave_eight(b, a);
    interleave_eight(a, b);
    interleave_eight(b, a);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) _mm_storeu_si128((__m128i *)(void *)(dst + i * dst_step), b[i]);
}

#else

static inline void turn_eight_codes(uint16_t *dst, int64_t dst_step, const uint16_t *src, int64_t src_step) {
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) dst[c * dst_step + r] = src[r * src_step + c];
}

#endif

/* Blocks as in wide_transpose. */
static void transpose_codes(uint16_t *dst, const uint16_t *src, int64_t rows, int64_t columns) {
    enum { SIDE = 8 };
    const int64_t whole_rows = rows - rows % SIDE, whole_columns = columns - columns % SIDE;
    for (int64_t r = 0; r < whole_rows; r += SIDE)
        for (int64_t c = 0; c < whole_columns; c += SIDE)
            turn_eight_codes(dst + c * rows + r, rows, src + r * columns + c, columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            dst[c * rows + r] = src[r * columns + c];
}

AB_ISA_TABLE(ab_vec_ops) = {.relu = relu,
                            .relu_backward = relu_backward,
                            .add = add,
                            .relu_bits = relu_bits,
                            .relu_backward_bits = relu_backward_bits,
                            .finite = finite,
                            .finite_bits = finite_bits,
                            .squares = squares,
                            .sum_parts = sum_parts,
                            .column_sums = column_sums,
                            .max_pool = max_pool,
                            .max_pool_backward = max_pool_backward,
                            .avg_pool = avg_pool,
                            .avg_pool_backward = avg_pool_backward,
                            .transpose = transpose,
                            .transpose_codes = transpose_codes};
