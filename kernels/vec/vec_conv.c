/* The loops of vec_conv.h. Each tile function is inlined once per size, so that its accumulators stay in
 * registers. Multiply-adds are fused where the CPU level has FMA. */
#include "kernels/vec/vec_conv.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"
#include "kernels/vec/vec_wide.h"

#include <stdbool.h>

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

#if defined(__AVX512VL__)
/* Eight lanes of two times eight. */
static inline oct wide_eight(wide v, int half) {
    return half == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1);
}
#elif defined(__AVX2__)
static inline oct wide_eight(wide v, int half) {
    (void)half;
    return v;
}
#endif

/* How a tensor is stored. */
enum { AS_FP32, AS_FP16, AS_BF16 };

enum {
    MAX_RUN = 5,
    NARROW_ROW = 10,
#if defined(__AVX512VL__)
    MAX_ROWS = 5, /* 25 accumulators of 32 registers */
    PAIR_CHANNELS = AB_NARROW
#else
    MAX_ROWS = 2,     /* 10 of 16 */
    PAIR_CHANNELS = 6 /* 12 of 16 */
#endif
};

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

/* Pixels [x, x + count), their channels in the lanes. Lanes past a pixel's channels are overwritten by later
 * pixels, which are stored after it.
 */
static AB_FORCE_INLINE void row_tile(const ab_narrow_row *job, int64_t x, const int count) {
    oct sum[NARROW_ROW], bias = oct_load(job->bias);
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

static void tile_1(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 1); }
static void tile_3(const ab_narrow_row *job, int64_t x) { row_tile(job, x, 3); }
static void tile_half(const ab_narrow_row *job, int64_t x) { row_tile(job, x, NARROW_ROW / 2); }
static void tile_whole(const ab_narrow_row *job, int64_t x) { row_tile(job, x, NARROW_ROW); }

/* The widest tile that fits, except that two narrower ones may cover the row with less overlap. The last
 * tile of a row is aligned to its end and stores some sums twice. */
static void narrow_row(const ab_narrow_row *job) {
    static const struct {
        int64_t pixels;
        void (*run)(const ab_narrow_row *, int64_t);
    } widths[] = {{NARROW_ROW, tile_whole}, {NARROW_ROW / 2, tile_half}, {3, tile_3}, {1, tile_1}};
    int best = 0;
    while (widths[best].pixels > job->pixels) best++;
    int64_t count = widths[best].pixels, rest = job->pixels % count;
    if (best == 0 && rest > 0 && rest <= NARROW_ROW / 2) count = widths[++best].pixels;
    for (int64_t x = 0; x < job->pixels; x += count)
        widths[best].run(job, x + count <= job->pixels ? x : job->pixels - count);
}

#if defined(__AVX2__)

/* Eight pixels from eight registers, a channel each. Lanes past a pixel's channels are overwritten as in
 * row_tile; those of the last pixels may reach behind all eight. */
static AB_FORCE_INLINE void store_turned(float *out, int64_t room, const oct *sum, const int channels) {
    enum { PIXELS = 8 };
    oct top[4], bottom[4];
    turn_four(sum[0], sum[1], sum[2], sum[3], top);
    turn_four(sum[4], sum[5], sum[6], sum[7], bottom);
#pragma GCC unroll 8
    for (int p = 0; p < PIXELS; p++) {
        const oct pixel = p < 4 ? FIRST_HALVES(top[p], bottom[p]) : SECOND_HALVES(top[p - 4], bottom[p - 4]);
        if ((PIXELS - p) * channels >= AB_NARROW)
            oct_store(out + p * channels, pixel);
        else
            store_pixel(out + p * channels, pixel, channels, room - p * channels);
    }
}

/* ROUNDED: an even number of channels is rounded in registers. `pair_codes` has those of two adjacent
 * channels of LANES pixels, in the order of pixels. */
#if defined(__AVX512F__)

typedef __m512i pair_codes;
static AB_FORCE_INLINE __m512i codes_of(wide v, const int as) {
    return _mm512_castsi256_si512(as == AS_FP16 ? narrowed_fp16(v) : narrowed_bf16(v));
}
static AB_FORCE_INLINE pair_codes pairs_of(wide first, wide second, const int as) {
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39,
                                           7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(codes_of(first, as), order, codes_of(second, as));
}
/* Lanes `at` of v in those lanes of `mask`, and elsewhere `rest`. */
static AB_FORCE_INLINE pair_codes pairs_mixed(pair_codes rest, const unsigned mask, const int *at,
                                              pair_codes v) {
    return _mm512_mask_permutexvar_epi32(rest, (__mmask16)mask, _mm512_loadu_si512(at), v);
}
static inline pair_codes pairs_zero(void) { return _mm512_setzero_si512(); }
static inline void pairs_store(uint16_t *p, pair_codes v) { _mm512_storeu_si512(p, v); }

#else

typedef __m256i pair_codes;
static AB_FORCE_INLINE __m128i codes_of(wide v, const int as) {
    if (as == AS_FP16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i codes = narrowed_bf16_8_or_nan(v);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(codes, codes), 0x08));
}
static AB_FORCE_INLINE pair_codes pairs_of(wide first, wide second, const int as) {
    const __m128i a = codes_of(first, as), b = codes_of(second, as);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(a, b)), _mm_unpackhi_epi16(a, b),
                                   1);
}
static AB_FORCE_INLINE pair_codes pairs_mixed(pair_codes rest, const unsigned mask, const int *at,
                                              pair_codes v) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
                  live = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bits), bits),
                  lanes = _mm256_loadu_si256((const __m256i *)(const void *)at);
    return _mm256_blendv_epi8(rest, _mm256_permutevar8x32_epi32(v, lanes), live);
}
static inline pair_codes pairs_zero(void) { return _mm256_setzero_si256(); }
static inline void pairs_store(uint16_t *p, pair_codes v) { _mm256_storeu_si256((__m256i *)(void *)p, v); }

#endif

/* LANES pixels from a register for each of `channels`, an even number, rounded. */
static AB_FORCE_INLINE void store_rounded(uint16_t *codes, const wide *sum, const int channels,
                                          const int as) {
    const int count = channels / 2;
    pair_codes pair[AB_NARROW / 2];
#pragma GCC unroll 4
    for (int k = 0; k < count; k++) pair[k] = pairs_of(sum[2 * k], sum[2 * k + 1], as);
#pragma GCC unroll 4
    for (int part = 0; part < count; part++) {
        pair_codes out = pairs_zero();
#pragma GCC unroll 4
        for (int k = 0; k < count; k++) {
            unsigned mask = 0;
            int at[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                at[i] = (part * LANES + i) / count;
                mask |= (part * LANES + i) % count == k ? 1u << i : 0u;
            }
            out = pairs_mixed(out, mask, at, pair[k]);
        }
        pairs_store(codes + part * 2 * LANES, out);
    }
}

/* LANES pixels from a register for each of `channels`. */
static AB_FORCE_INLINE void store_vector(const ab_narrow_row *job, int64_t x, const wide *sum,
                                         const int channels, const int as) {
    if (as != AS_FP32) {
        store_rounded(job->codes + x * channels, sum, channels, as);
        return;
    }
    if (channels == 1) {
        wide_store(job->out + x, sum[0]);
        return;
    }
#pragma GCC unroll 2
    for (int part = 0; part < LANES / 8; part++) {
        const int64_t at = (x + part * 8) * channels;
        oct eight[AB_NARROW];
#pragma GCC unroll 8
        for (int c = 0; c < AB_NARROW; c++)
            eight[c] = c < channels ? wide_eight(sum[c], part) : oct_set(0.0f);
        store_turned(job->out + at, job->room - at, eight, channels);
    }
}

/* Pixels from x[0] and x[1] on, LANES each, the pixels in the lanes. */
static AB_FORCE_INLINE void row_vectors(const ab_narrow_row *job, const int64_t *x, const int vectors,
                                        const int channels, const int as) {
    wide sum[2][AB_NARROW];
    const float *weights = job->weights;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 8
        for (int c = 0; c < channels; c++) sum[v][c] = wide_set(job->bias[c]);
    for (int64_t k = 0; k < job->taps; k++, weights += AB_NARROW) {
        const float *in = job->in + job->offset[k];
        wide line[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) line[v] = wide_load(in + x[v]);
#pragma GCC unroll 8
        for (int c = 0; c < channels; c++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[v][c] = wide_fma(weights[c], line[v], sum[v][c]);
    }
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) store_vector(job, x[v], sum[v], channels, as);
}

/* The last vector of a row is aligned to its end. */
static AB_FORCE_INLINE void vectors_of_row(const ab_narrow_row *job, const int channels, const int as) {
    const int64_t last = job->pixels - LANES;
    const bool pairs = channels <= PAIR_CHANNELS;
    for (int64_t x = 0; x < job->pixels; x += pairs ? 2 * LANES : LANES) {
        const int64_t at[2] = {x < last ? x : last, x + LANES < last ? x + LANES : last};
        if (pairs && x < last)
            row_vectors(job, at, 2, channels, as);
        else
            row_vectors(job, at, 1, channels, as);
    }
}

typedef void (*row_function)(const ab_narrow_row *job);

#define ROW(name, channels, as)                                                                              \
    static void name##_##channels(const ab_narrow_row *job) { vectors_of_row(job, channels, as); }
#define ROW_FP32(channels) ROW(row, channels, AS_FP32)
#define ROWS_ROUNDED(channels) ROW(row_fp16, channels, AS_FP16) ROW(row_bf16, channels, AS_BF16)
#define EVEN(each) each(2) each(4) each(6) each(8)
#define ANY(each) each(1) each(3) each(5) each(7) EVEN(each)

ANY(ROW_FP32)
EVEN(ROWS_ROUNDED)

/* By half the channels. */
static void round_row(const ab_narrow_row *job) {
    static const row_function fp16[] = {0, row_fp16_2, row_fp16_4, row_fp16_6, row_fp16_8},
                              bf16[] = {0, row_bf16_2, row_bf16_4, row_bf16_6, row_bf16_8};
    (job->is_bf16 ? bf16 : fp16)[job->channels / 2](job);
}

static void row(const ab_narrow_row *job) {
    static const row_function fp32[] = {0, row_1, row_2, row_3, row_4, row_5, row_6, row_7, row_8};
    if (job->codes)
        round_row(job);
    else
        (job->pixels >= LANES ? fp32[job->channels] : narrow_row)(job);
}

static bool rounds(int64_t pixels, int64_t channels) { return pixels >= LANES && channels % 2 == 0; }

#else

static void row(const ab_narrow_row *job) { narrow_row(job); }
static bool rounds(int64_t pixels, int64_t channels) {
    (void)pixels, (void)channels;
    return false;
}

#endif

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

/* Kernel column c of a pixel whose columns are in two pairs and an oct. */
static AB_FORCE_INLINE oct column_of(const wide *pairs, oct last, const int c) {
    return c == 4 ? last : wide_eight(pairs[c / 2], c % 2);
}

/* scatter_tile for five columns; the same sums in the same order. */
static void scatter_5(const ab_narrow_scatter *job, int64_t x, int64_t k) {
    wide pairs[WIDE_5][2];
    oct last[WIDE_5];
    const int64_t run = job->run;
    const float *dout = job->dout + x * run, *weights = job->weights + k * run * AB_NARROW;
    float *to = job->sum + (x * job->step + k) * AB_NARROW;
    for (int q = 0; q < WIDE_5; q++) {
        pairs[q][0] = pairs[q][1] = wide_zero();
        last[q] = oct_set(0.0f);
    }
    for (int64_t j = 0; j < run; j++, weights += 5 * AB_NARROW)
        for (int q = 0; q < WIDE_5; q++) {
            const wide d = wide_set(dout[q * run + j]);
            pairs[q][0] = wide_fma_lanes(d, wide_load(weights), pairs[q][0]);
            pairs[q][1] = wide_fma_lanes(d, wide_load(weights + 2 * AB_NARROW), pairs[q][1]);
            last[q] = oct_fma(wide_eight(d, 0), oct_load(weights + 4 * AB_NARROW), last[q]);
        }
#pragma GCC unroll 16
    for (int i = 0; i < WIDE_5 + 4; i++) {
        oct total = oct_load(to + i * AB_NARROW);
#pragma GCC unroll 16
        for (int q = 0; q < WIDE_5; q++)
            if (i - q >= 0 && i - q < 5) total = oct_add(total, column_of(pairs[q], last[q], i - q));
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

/* Sums of dout over pixels as column_sums (vec_ops.c) has them: of every fourth pixel, those behind the last
 * four in the first sum. The sum whose turn it is comes first. */
typedef struct four_sums {
    oct of[4];
} four_sums;

static AB_FORCE_INLINE void add_in_turn(four_sums *sums, oct d) {
    const oct next = oct_add(sums->of[0], d);
    for (int i = 0; i < 3; i++) sums->of[i] = sums->of[i + 1];
    sums->of[3] = next;
}

static AB_FORCE_INLINE oct total_of(const four_sums *sums) {
    return oct_add(oct_add(sums->of[0], sums->of[1]), oct_add(sums->of[2], sums->of[3]));
}

/* The channels of a pixel of dout, and what lies behind them in memory; of codes for operands of arithmetic,
 * which quietens NaNs. */
static AB_FORCE_INLINE oct load_pixel(const ab_narrow_image *job, int64_t at, const int as) {
#if defined(__AVX2__)
    const uint16_t *codes = job->codes + at;
    if (as == AS_FP16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)codes));
    if (as == AS_BF16) {
        const __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)codes);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
    }
#endif
    (void)as;
    return oct_load(job->dout + at);
}

/* The same of a pixel with less than a vector behind its first channel. */
static oct load_last(const ab_narrow_image *job, int64_t at, const int as) {
    uint16_t codes[AB_NARROW] = {0};
    float lanes[AB_NARROW] = {0};
    for (int64_t i = 0; i < job->channels; i++)
        if (as == AS_FP32)
            lanes[i] = job->dout[at + i];
        else
            codes[i] = job->codes[at + i];
    const ab_narrow_image last = {.dout = lanes, .codes = codes};
    return load_pixel(&last, 0, as);
}

/* Kernel rows [r0, r0 + rows) and, of each, taps [j0, j0 + run); bias: the sums of dout, too. */
static AB_FORCE_INLINE void weights_tile(const ab_narrow_image *job, int64_t r0, int64_t j0, const int rows,
                                         const int run, const bool bias, const int as) {
    oct sum[MAX_ROWS * MAX_RUN];
    four_sums sums = {{oct_set(0.0f), oct_set(0.0f), oct_set(0.0f), oct_set(0.0f)}};
    float *to = job->dweight + (r0 * job->run + j0) * AB_NARROW;
    const int64_t pixels = job->height * job->width, in_turn = pixels - pixels % 4;
    /* up to here a full load stays inside */
    int64_t whole = pixels * job->channels - AB_NARROW;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) sum[r * run + j] = oct_load(to + (r * job->run + j) * AB_NARROW);
    for (int64_t y = 0, pixel = 0; y < job->height; y++) {
        const float *in = job->in + y * job->image_step + r0 * job->row_step + j0;
        const float *line[MAX_ROWS];
        for (int r = 0; r < rows; r++) line[r] = in + r * job->row_step;
        for (int64_t x = 0; x < job->width; x++, pixel++) {
            const int64_t at = pixel * job->channels;
            const oct d = at > whole ? load_last(job, at, as) : load_pixel(job, at, as);
            if (bias && pixel < in_turn) add_in_turn(&sums, d);
            if (bias && pixel >= in_turn) sums.of[0] = oct_add(sums.of[0], d);
            for (int r = 0; r < rows; r++) {
                for (int j = 0; j < run; j++)
                    sum[r * run + j] = oct_fma(oct_set(line[r][j]), d, sum[r * run + j]);
                line[r] += job->step;
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < run; j++) oct_store(to + (r * job->run + j) * AB_NARROW, sum[r * run + j]);
    if (bias) oct_store(job->bias, total_of(&sums));
}

typedef void (*weights_part)(const ab_narrow_image *job, int64_t r0, int64_t j0);

#define WEIGHTS(name, rows, run, bias, as)                                                                   \
    static void name##_##run(const ab_narrow_image *job, int64_t r0, int64_t j0) {                           \
        weights_tile(job, r0, j0, rows, run, bias, as);                                                      \
    }
#define EACH_RUN(name, rows, bias, as)                                                                       \
    WEIGHTS(name, rows, 1, bias, as)                                                                         \
    WEIGHTS(name, rows, 2, bias, as)                                                                         \
    WEIGHTS(name, rows, 3, bias, as)                                                                         \
    WEIGHTS(name, rows, 4, bias, as)                                                                         \
    WEIGHTS(name, rows, 5, bias, as)                                                                         \
    static const weights_part name[MAX_RUN + 1] = {0, name##_1, name##_2, name##_3, name##_4, name##_5};
#define EACH_TILE(name, as)                                                                                  \
    EACH_RUN(name##_line, 1, false, as)                                                                      \
    EACH_RUN(name##_line_bias, 1, true, as)                                                                  \
    EACH_RUN(name##_block, MAX_ROWS, false, as)                                                              \
    EACH_RUN(name##_block_bias, MAX_ROWS, true, as)                                                          \
    static const weights_part *const name[2][2] = {{name##_line, name##_line_bias},                          \
                                                   {name##_block, name##_block_bias}};

EACH_TILE(fp32, AS_FP32)
#if defined(__AVX2__)
EACH_TILE(fp16, AS_FP16)
EACH_TILE(bf16, AS_BF16)
static const weights_part *const (*tiles_of(const ab_narrow_image *job))[2] {
    return !job->codes ? fp32 : job->is_bf16 ? bf16 : fp16;
}
enum { READS_CODES = true };
#else
static const weights_part *const (*tiles_of(const ab_narrow_image *job))[2] {
    (void)job;
    return fp32;
}
enum { READS_CODES = false };
#endif

static void weights(const ab_narrow_image *job) {
    for (int64_t r = 0, rows; r < job->rows; r += rows) {
        const bool block = job->rows - r >= MAX_ROWS;
        rows = block ? MAX_ROWS : 1;
        for (int64_t j = 0, run; j < job->run; j += run) {
            run = job->run - j < MAX_RUN ? job->run - j : MAX_RUN;
            tiles_of(job)[block][job->bias && r == 0 && j == 0][run](job, r, j);
        }
    }
}

AB_ISA_TABLE(ab_vec_conv) = {.keep = keep,
                             .row = row,
                             .scatter = scatter,
                             .weights = weights,
                             .reads_codes = READS_CODES,
                             .rounds = rounds};
