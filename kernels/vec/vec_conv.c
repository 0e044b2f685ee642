/* The loops of vec_conv.h. Each tile function is inlined once per size, so that its accumulators stay in
 * registers. Multiply-adds are fused where the CPU level has FMA. */
#include "kernels/vec/vec_conv.h"

#include <string.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

#if defined(__AVX2__)

#include <immintrin.h>
typedef __m256 oct;
static inline oct oct_set(float x) { return _mm256_set1_ps(x); }
static inline oct oct_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void oct_store(float *p, oct v) { _mm256_storeu_ps(p, v); }
static inline oct oct_add(oct a, oct b) { return _mm256_add_ps(a, b); }
static inline oct oct_fma(oct a, oct b, oct c) { return _mm256_fmadd_ps(a, b, c); }

#else

typedef struct oct {
    float lane[AB_NARROW];
} oct;
static inline oct oct_set(float x) { return (oct){{x, x, x, x, x, x, x, x}}; }
static inline oct oct_load(const float *p) { return (oct){{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}}; }
static inline void oct_store(float *p, oct v) {
    for (int i = 0; i < AB_NARROW; i++) p[i] = v.lane[i];
}
static inline oct oct_add(oct a, oct b) {
    for (int i = 0; i < AB_NARROW; i++) a.lane[i] += b.lane[i];
    return a;
}
static inline oct oct_fma(oct a, oct b, oct c) {
    for (int i = 0; i < AB_NARROW; i++) c.lane[i] += a.lane[i] * b.lane[i];
    return c;
}

#endif

enum {
    MAX_RUN = 5,
#if defined(__AVX512VL__)
    WIDE_ROW = 28, /* 14 accumulators */
    MAX_ROWS = 5   /* 25 accumulators of 32 registers */
#else
    WIDE_ROW = 10,
    MAX_ROWS = 2 /* 10 of 16 */
#endif
};

static oct load_lanes(const float *p, int64_t n) {
    float lanes[AB_NARROW] = {0};
    for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
    return oct_load(lanes);
}

/* Stores the first `channels` lanes, or all lanes if there is `room`. */
static inline void store_pixel(float *p, oct v, int64_t channels, int64_t room) {
    float lanes[AB_NARROW];
    if (room >= AB_NARROW) {
        oct_store(p, v);
        return;
    }
    oct_store(lanes, v);
    for (int64_t i = 0; i < channels; i++) p[i] = lanes[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

#if defined(__AVX512VL__)

/* Two octs in one vector: lane by lane in turns (forward: two pixels), or one after the other (backward data:
 * two kernel columns). The multiply-adds of each lane are those of an oct. */
typedef __m512 twin;
static inline twin twin_fma(twin a, twin b, twin c) { return _mm512_fmadd_ps(a, b, c); }

/* p[0] and p[1] in turns. */
static inline twin twin_set(const float *p) {
    double both;
    memcpy(&both, p, sizeof both);
    return _mm512_castpd_ps(_mm512_set1_pd(both));
}

static inline twin twin_of(oct v) {
    const __m512i lanes = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(v));
}

/* The other order: the even lanes, then the odd ones. */
static inline twin twin_apart(twin v) {
    const __m512i lanes = _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutexvar_ps(lanes, v);
}
static inline oct twin_first(twin v) { return _mm512_castps512_ps256(v); }
static inline oct twin_second(twin v) { return _mm512_extractf32x8_ps(v, 1); }

/* As row_tile, for an even count. */
static AB_FORCE_INLINE void row_twins(const ab_narrow_row *job, int64_t x, const int count) {
    twin sum[WIDE_ROW / 2], bias = twin_of(oct_load(job->bias));
    const float *weights = job->weights, *base = job->in + x;
    float *out = job->out + x * job->channels;
    const int64_t channels = job->channels, room = job->room - x * channels;
    for (int p = 0; p < count / 2; p++) sum[p] = bias;
    for (int64_t k = 0; k < job->taps; k++, weights += AB_NARROW) {
        const twin weight = twin_of(oct_load(weights));
        const float *in = base + job->offset[k];
        for (int p = 0; p < count / 2; p++) sum[p] = twin_fma(twin_set(in + 2 * p), weight, sum[p]);
    }
    for (int p = 0; p < count / 2; p++) {
        const twin apart = twin_apart(sum[p]);
        const int64_t at = 2 * p * channels;
        store_pixel(out + at, twin_first(apart), channels, room - at);
        store_pixel(out + at + channels, twin_second(apart), channels, room - at - channels);
    }
}

#endif

/* Pixels [x, x + count). Lanes past a pixel's channels are overwritten by later pixels, which are stored
 * after it.
 */
static AB_FORCE_INLINE void row_tile(const ab_narrow_row *job, int64_t x, const int count) {
    oct sum[WIDE_ROW], bias = oct_load(job->bias);
    const float *weights = job->weights, *base = job->in + x;
    const int64_t *offset = job->offset;
    int64_t taps = job->taps, channels = job->channels;
    for (int p = 0; p < count; p++) sum[p] = bias;
    for (int64_t k = 0; k < taps; k++, weights += AB_NARROW) {
        oct weight = oct_load(weights);
        const float *in = base + offset[k];
        for (int p = 0; p < count; p++) sum[p] = oct_fma(oct_set(in[p]), weight, sum[p]);
    }
    float *out = job->out + x * channels;
    int64_t room = job->room - x * channels;
    for (int p = 0; p < count; p++) store_pixel(out + p * channels, sum[p], channels, room - p * channels);
}

typedef struct row_width {
    int64_t pixels;
    void (*run)(const ab_narrow_row *, int64_t);
} row_width;

static void row_1(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1); }

#if defined(__AVX512VL__)
static void row_wide(const ab_narrow_row *job, int64_t x) { row_twins(job, x, WIDE_ROW); }
static void row_half(const ab_narrow_row *job, int64_t x) { row_twins(job, x, WIDE_ROW / 2); }
static void row_6(const ab_narrow_row *job, int64_t x) { row_twins(job, x, 6); }
static void row_2(const ab_narrow_row *job, int64_t x) { row_twins(job, x, 2); }
static const row_width row_widths[] = {
    {WIDE_ROW, row_wide}, {WIDE_ROW / 2, row_half}, {6, row_6}, {2, row_2}, {1, row_1}};
#else
static void row_wide(const ab_narrow_row *job, int64_t x) { row_tile(job, x, WIDE_ROW); }
static void row_half(const ab_narrow_row *job, int64_t x) { row_tile(job, x, WIDE_ROW / 2); }
static void row_3(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 3); }
static const row_width row_widths[] = {
    {WIDE_ROW, row_wide}, {WIDE_ROW / 2, row_half}, {3, row_3}, {1, row_1}};
#endif

/* The widest tile that fits, except that two narrower ones may cover the row with less overlap. The last
 * tile of a row is aligned to its end and stores some sums twice. */
static void row(const ab_narrow_row *job) {
    int best = 0;
    while (row_widths[best].pixels > job->pixels) best++;
    int64_t count = row_widths[best].pixels, rest = job->pixels % count;
    if (best == 0 && rest > 0 && rest <= WIDE_ROW / 2) count = row_widths[++best].pixels;
    for (int64_t x = 0; x < job->pixels; x += count)
        row_widths[best].run(job, x + count <= job->pixels ? x : job->pixels - count);
}

/* ---- backward data --------------------------------------------------------------------------- */

/* `pixels` from x on, kernel columns [k, k + columns). Pixel q and column c contribute to position q *
 * step + c: with step 1, equal positions are added in registers (columns is 1 with larger steps). */
static AB_FORCE_INLINE void scatter_tile(const ab_narrow_scatter *job, int64_t x, int64_t k, const int pixels,
                                         const int columns) {
    oct sum[10][5];
    int64_t run = job->run, apart = (columns > 1 ? 1 : job->step) * AB_NARROW;
    const float *dout = job->dout + x * run, *weights = job->weights + k * run * AB_NARROW;
    float *to = job->sum + (x * job->step + k) * AB_NARROW;
    for (int q = 0; q < pixels; q++)
        for (int c = 0; c < columns; c++) sum[q][c] = oct_set(0.0f);
    for (int64_t j = 0; j < run; j++, weights += columns * AB_NARROW)
        for (int q = 0; q < pixels; q++) {
            oct d = oct_set(dout[q * run + j]);
            for (int c = 0; c < columns; c++)
                sum[q][c] = oct_fma(d, oct_load(weights + c * AB_NARROW), sum[q][c]);
        }
#pragma GCC unroll 16
    for (int i = 0; i < pixels + columns - 1; i++) {
        oct total = oct_load(to + i * apart);
#pragma GCC unroll 16
        for (int q = 0; q < pixels; q++)
            if (i - q >= 0 && i - q < columns) total = oct_add(total, sum[q][i - q]);
        oct_store(to + i * apart, total);
    }
}

enum { WIDE_5 = MAX_ROWS, WIDE_3 = MAX_ROWS == 5 ? 8 : 3, WIDE_1 = 10 };

#if defined(__AVX512VL__)

/* Kernel column c of a pixel whose columns are two twins and an oct. */
static AB_FORCE_INLINE oct twin_column(const twin *pairs, oct last, const int c) {
    if (c == 4) return last;
    return c % 2 == 0 ? twin_first(pairs[c / 2]) : twin_second(pairs[c / 2]);
}

/* scatter_tile for five columns; the same sums in the same order. */
static void scatter_5(const ab_narrow_scatter *job, int64_t x, int64_t k) {
    twin pairs[WIDE_5][2];
    oct last[WIDE_5];
    const int64_t run = job->run;
    const float *dout = job->dout + x * run, *weights = job->weights + k * run * AB_NARROW;
    float *to = job->sum + (x * job->step + k) * AB_NARROW;
    for (int q = 0; q < WIDE_5; q++) {
        pairs[q][0] = pairs[q][1] = _mm512_setzero_ps();
        last[q] = oct_set(0.0f);
    }
    for (int64_t j = 0; j < run; j++, weights += 5 * AB_NARROW)
        for (int q = 0; q < WIDE_5; q++) {
            const twin d = _mm512_set1_ps(dout[q * run + j]);
            pairs[q][0] = twin_fma(d, _mm512_loadu_ps(weights), pairs[q][0]);
            pairs[q][1] = twin_fma(d, _mm512_loadu_ps(weights + 2 * AB_NARROW), pairs[q][1]);
            last[q] = oct_fma(twin_first(d), oct_load(weights + 4 * AB_NARROW), last[q]);
        }
#pragma GCC unroll 16
    for (int i = 0; i < WIDE_5 + 4; i++) {
        oct total = oct_load(to + i * AB_NARROW);
#pragma GCC unroll 16
        for (int q = 0; q < WIDE_5; q++)
            if (i - q >= 0 && i - q < 5) total = oct_add(total, twin_column(pairs[q], last[q], i - q));
        oct_store(to + i * AB_NARROW, total);
    }
}

#else

static void scatter_5(const ab_narrow_scatter *job, int64_t x, int64_t k) {
    scatter_tile(job, x, k, WIDE_5, 5);
}

#endif

static void scatter_3(const ab_narrow_scatter *job, int64_t x, int64_t k) {
    scatter_tile(job, x, k, WIDE_3, 3);
}
static void scatter_1(const ab_narrow_scatter *job, int64_t x, int64_t k) {
    scatter_tile(job, x, k, WIDE_1, 1);
}
static void pixel_5(const ab_narrow_scatter *job, int64_t x, int64_t k) { scatter_tile(job, x, k, 1, 5); }
static void pixel_3(const ab_narrow_scatter *job, int64_t x, int64_t k) { scatter_tile(job, x, k, 1, 3); }
static void pixel_1(const ab_narrow_scatter *job, int64_t x, int64_t k) { scatter_tile(job, x, k, 1, 1); }

static void scatter(const ab_narrow_scatter *job) {
    typedef void (*tile)(const ab_narrow_scatter *, int64_t, int64_t);
    static const struct {
        int64_t wide;
        tile run, pixel;
    } tiles[] = {[1] = {WIDE_1, scatter_1, pixel_1},
                 [3] = {WIDE_3, scatter_3, pixel_3},
                 [5] = {WIDE_5, scatter_5, pixel_5}};
    for (int64_t k = 0, columns; k < job->columns; k += columns) {
        columns = ab_narrow_chunk(job->columns - k, job->step);
        int64_t x = 0;
        for (; x + tiles[columns].wide <= job->pixels; x += tiles[columns].wide)
            tiles[columns].run(job, x, k);
        for (; x < job->pixels; x++) tiles[columns].pixel(job, x, k);
    }
}

static void keep(float *out, const float *from, int64_t pixels, int64_t channels, int64_t room) {
    for (int64_t x = 0; x < pixels; x++)
        store_pixel(out + x * channels, oct_load(from + x * AB_NARROW), channels, room - x * channels);
}

/* ---- backward weights ------------------------------------------------------------------------ */

/* Kernel rows [r0, r0 + rows) and, of each, taps [j0, j0 + run). */
static AB_FORCE_INLINE void weights_tile(const ab_narrow_image *job, int64_t r0, int64_t j0, const int rows,
                                         const int run) {
    oct sum[MAX_ROWS * MAX_RUN];
    float *to = job->dweight + (r0 * job->run + j0) * AB_NARROW;
    /* up to here a full load stays inside */
    int64_t whole = job->height * job->width * job->channels - AB_NARROW;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) sum[r * run + j] = oct_load(to + (r * job->run + j) * AB_NARROW);
    for (int64_t y = 0, pixel = 0; y < job->height; y++) {
        const float *in = job->in + y * job->image_step + r0 * job->row_step + j0;
        for (int64_t x = 0; x < job->width; x++, pixel++, in += job->step) {
            const float *at = job->dout + pixel * job->channels;
            oct d = pixel * job->channels > whole ? load_lanes(at, job->channels) : oct_load(at);
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < run; j++)
                    sum[r * run + j] = oct_fma(oct_set(in[r * job->row_step + j]), d, sum[r * run + j]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) oct_store(to + (r * job->run + j) * AB_NARROW, sum[r * run + j]);
}

typedef void (*weights_part)(const ab_narrow_image *job, int64_t r0, int64_t j0);

static void block_1(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 1);
}
static void block_2(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 2);
}
static void block_3(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 3);
}
static void block_4(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 4);
}
static void block_5(const ab_narrow_image *job, int64_t r0, int64_t j0) {
    weights_tile(job, r0, j0, MAX_ROWS, 5);
}
static void line_1(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 1); }
static void line_2(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 2); }
static void line_3(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 3); }
static void line_4(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 4); }
static void line_5(const ab_narrow_image *job, int64_t r0, int64_t j0) { weights_tile(job, r0, j0, 1, 5); }

static void weights(const ab_narrow_image *job) {
    static const weights_part block[MAX_RUN + 1] = {0, block_1, block_2, block_3, block_4, block_5};
    static const weights_part line[MAX_RUN + 1] = {0, line_1, line_2, line_3, line_4, line_5};
    for (int64_t r = 0, rows; r < job->rows; r += rows) {
        rows = job->rows - r >= MAX_ROWS ? MAX_ROWS : 1;
        for (int64_t j = 0, run; j < job->run; j += run) {
            run = job->run - j < MAX_RUN ? job->run - j : MAX_RUN;
            (rows == MAX_ROWS ? block : line)[run](job, r, j);
        }
    }
}

extern const ab_vec_conv PASTE(ab_vec_conv_, AB_ISA_SUFFIX);
const ab_vec_conv PASTE(ab_vec_conv_,
                        AB_ISA_SUFFIX) = {.keep = keep, .row = row, .scatter = scatter, .weights = weights};
