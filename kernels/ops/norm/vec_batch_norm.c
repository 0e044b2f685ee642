/* The loops of vec_batch_norm.h, compiled once per CPU level. Every sum has a fixed order that does not
 * depend on the vector length and nothing is fused in the sense of FMA, so that all levels give the same
 * bits. */
#include "kernels/ops/norm/vec_batch_norm.h"

#include "kernels/vec/vec_half.h"
#include "kernels/vec/vec_wide.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

enum { ROW_SUMS = 4 };

/* ---- stored values --------------------------------------------------------------------------- */

#if defined(__AVX512F__)

static AB_FORCE_INLINE wide load_half(const uint16_t *p, int n, ab_bn_stored stored) {
    const __m256i codes = _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p);
    return stored == AB_BN_FP16 ? _mm512_cvtph_ps(codes) : _mm512_castsi512_ps(widened_bf16(codes));
}

static AB_FORCE_INLINE void store_half(uint16_t *p, wide v, int n, ab_bn_stored stored) {
    const __m256i codes = stored == AB_BN_FP16 ? narrowed_fp16(v) : narrowed_bf16(v);
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), codes);
}

static AB_FORCE_INLINE wide rounded_half(wide v, ab_bn_stored stored) {
    const __m512i kept = _mm512_set1_epi32(-(1 << BF16_DROP));
    if (stored == AB_BN_FP16) return _mm512_cvtph_ps(narrowed_fp16(v));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(v), kept));
}

/* v where `above` is more than 0 or NaN, else 0. */
static AB_FORCE_INLINE wide wide_where_above(wide v, wide above) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(above, _mm512_setzero_ps(), _CMP_NLE_UQ), v);
}

#elif defined(__AVX2__)

static AB_FORCE_INLINE wide widened(__m128i codes, ab_bn_stored stored) {
    if (stored == AB_BN_FP16) return _mm256_cvtph_ps(codes);
    return _mm256_castsi256_ps(quietened(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), BF16_DROP)));
}

static AB_FORCE_INLINE __m128i narrowed(wide v, ab_bn_stored stored) {
    if (stored == AB_BN_FP16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i codes = narrowed_bf16_8(v);
    /* packing works within 128-bit lanes: their lower quarters side by side */
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(codes, codes), 0xd8));
}

static AB_FORCE_INLINE wide load_half(const uint16_t *p, int n, ab_bn_stored stored) {
    uint16_t few[LANES] = {0};
    if (n == LANES) return widened(_mm_loadu_si128((const __m128i *)(const void *)p), stored);
    for (int i = 0; i < n; i++) few[i] = p[i];
    return widened(_mm_loadu_si128((const __m128i *)(const void *)few), stored);
}

static AB_FORCE_INLINE void store_half(uint16_t *p, wide v, int n, ab_bn_stored stored) {
    uint16_t few[LANES];
    if (n == LANES) {
        _mm_storeu_si128((__m128i *)(void *)p, narrowed(v, stored));
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)few, narrowed(v, stored));
    for (int i = 0; i < n; i++) p[i] = few[i];
}

static AB_FORCE_INLINE wide rounded_half(wide v, ab_bn_stored stored) {
    return widened(narrowed(v, stored), stored);
}

static AB_FORCE_INLINE wide wide_where_above(wide v, wide above) {
    return _mm256_and_ps(v, _mm256_cmp_ps(above, _mm256_setzero_ps(), _CMP_NLE_UQ));
}

#else

static inline float widened(uint16_t code, ab_bn_stored stored) {
    return stored == AB_BN_FP16 ? widen_fp16_lane(code) : widen_bf16_lane(code);
}

static inline uint16_t narrowed(float x, ab_bn_stored stored) {
    return stored == AB_BN_FP16 ? (uint16_t)narrow_fp16_lane(x) : narrow_bf16_lane(x);
}

static inline wide load_half(const uint16_t *p, int n, ab_bn_stored stored) {
    wide v = wide_zero();
    for (int i = 0; i < n; i++) v.lane[i] = widened(p[i], stored);
    return v;
}

static inline void store_half(uint16_t *p, wide v, int n, ab_bn_stored stored) {
    for (int i = 0; i < n; i++) p[i] = narrowed(v.lane[i], stored);
}

static inline wide rounded_half(wide v, ab_bn_stored stored) {
    for (int i = 0; i < LANES; i++) v.lane[i] = widened(narrowed(v.lane[i], stored), stored);
    return v;
}

static inline wide wide_where_above(wide v, wide above) {
    for (int i = 0; i < LANES; i++) v.lane[i] = above.lane[i] <= 0.0f ? 0.0f : v.lane[i];
    return v;
}

#endif

static AB_FORCE_INLINE wide load(const void *p, int64_t at, int n, ab_bn_stored stored) {
    if (stored == AB_BN_FP32) return wide_load_first((const float *)p + at, n);
    return load_half((const uint16_t *)p + at, n, stored);
}

static AB_FORCE_INLINE void store(void *p, int64_t at, wide v, int n, ab_bn_stored stored) {
    if (stored == AB_BN_FP32)
        wide_store_first((float *)p + at, v, n);
    else
        store_half((uint16_t *)p + at, v, n, stored);
}

static AB_FORCE_INLINE wide as_stored(wide v, ab_bn_stored stored) {
    return stored == AB_BN_FP32 ? v : rounded_half(v, stored);
}

static inline int columns_left(int64_t left) { return left < LANES ? (int)left : LANES; }

/* ---- statistics ------------------------------------------------------------------------------ */

static inline wide total(const wide sums[ROW_SUMS]) {
    return wide_add(wide_add(sums[0], sums[1]), wide_add(sums[2], sums[3]));
}

static inline void clear(wide sums[ROW_SUMS]) {
    for (int i = 0; i < ROW_SUMS; i++) sums[i] = wide_zero();
}

static AB_FORCE_INLINE wide term(wide x, const wide *mean) {
    if (!mean) return x;
    const wide d = wide_sub(x, *mean);
    return wide_mul(d, d);
}

/* Sum over the rows of x, or of the square of x - mean. */
static AB_FORCE_INLINE wide column_sum(const ab_bn_rows *r, int64_t c, int n, const wide *mean,
                                       ab_bn_stored stored) {
    const int64_t whole = r->rows - r->rows % ROW_SUMS;
    wide sums[ROW_SUMS];
    clear(sums);
    for (int64_t row = 0; row < whole; row += ROW_SUMS)
        for (int i = 0; i < ROW_SUMS; i++)
            sums[i] = wide_add(sums[i], term(load(r->x, (row + i) * r->channels + c, n, stored), mean));
    for (int64_t row = whole; row < r->rows; row++)
        sums[0] = wide_add(sums[0], term(load(r->x, row * r->channels + c, n, stored), mean));
    return total(sums);
}

static AB_FORCE_INLINE void moments(const ab_bn_rows *r, float *mean, float *m2, ab_bn_stored stored) {
    for (int64_t c = 0; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide sum = column_sum(r, c, n, NULL, stored);
        const wide m = wide_div(sum, wide_set((float)r->rows));
        wide_store_first(mean + c, m, n);
        wide_store_first(m2 + c, column_sum(r, c, n, &m, stored), n);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static AB_FORCE_INLINE void apply_as(const ab_bn_rows *r, const ab_bn_factors *factors, const void *from,
                                     const void *addend, const void *above, bool relu, ab_bn_stored stored) {
    for (int64_t c = 0; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide mean = wide_load_first(factors->mean + c, n);
        const wide scale = wide_load_first(factors->scale + c, n);
        const wide shift = wide_load_first(factors->shift + c, n);
        for (int64_t at = c; at < r->rows * r->channels; at += r->channels) {
            wide v = load(from, at, n, stored);
            if (above) v = wide_where_above(v, load(above, at, n, stored));
            v = wide_add(wide_mul(wide_sub(v, mean), scale), shift);
            if (addend) v = wide_add(as_stored(v, stored), load(addend, at, n, stored));
            /* relu and rounding commute: rounding to nearest is monotonic and keeps 0 */
            if (relu) v = wide_where_above(v, v);
            store(r->out, at, v, n, stored);
        }
    }
}

static AB_FORCE_INLINE void apply(const ab_bn_rows *r, const ab_bn_factors *factors, ab_bn_stored stored) {
    if (!r->relu)
        apply_as(r, factors, r->x, NULL, NULL, false, stored);
    else if (r->addend)
        apply_as(r, factors, r->x, r->addend, NULL, true, stored);
    else
        apply_as(r, factors, r->x, NULL, NULL, true, stored);
}

/* ---- backward -------------------------------------------------------------------------------- */

static AB_FORCE_INLINE wide load_dy(const ab_bn_rows *r, int64_t at, int n, const void *above,
                                    ab_bn_stored stored) {
    const wide dy = load(r->dy, at, n, stored);
    return above ? wide_where_above(dy, load(above, at, n, stored)) : dy;
}

/* Adds the terms of one row. */
static AB_FORCE_INLINE void add_terms(const ab_bn_rows *r, int64_t at, int n, wide mean, const void *above,
                                      void *masked, wide *sum, wide *dot, ab_bn_stored stored) {
    const wide dy = load_dy(r, at, n, above, stored);
    if (masked) store(masked, at, dy, n, stored);
    *sum = wide_add(*sum, dy);
    *dot = wide_add(*dot, wide_mul(dy, wide_sub(load(r->x, at, n, stored), mean)));
}

static AB_FORCE_INLINE void sums_as(const ab_bn_rows *r, const float *mean, float *sum, float *dot,
                                    const void *above, void *masked, ab_bn_stored stored) {
    const int64_t step = r->channels, whole = (r->rows - r->rows % ROW_SUMS) * step;
    for (int64_t c = 0; c < step; c += LANES) {
        const int n = columns_left(step - c);
        const wide m = wide_load_first(mean + c, n);
        wide sums[ROW_SUMS], dots[ROW_SUMS];
        clear(sums);
        clear(dots);
        for (int64_t at = c; at < whole; at += ROW_SUMS * step)
            for (int i = 0; i < ROW_SUMS; i++)
                add_terms(r, at + i * step, n, m, above, masked, &sums[i], &dots[i], stored);
        for (int64_t at = whole + c; at < r->rows * step; at += step)
            add_terms(r, at, n, m, above, masked, &sums[0], &dots[0], stored);
        wide_store_first(sum + c, total(sums), n);
        wide_store_first(dot + c, total(dots), n);
    }
}

static AB_FORCE_INLINE void sums(const ab_bn_rows *r, const float *mean, float *sum, float *dot,
                                 ab_bn_stored stored) {
    if (!r->above)
        sums_as(r, mean, sum, dot, NULL, NULL, stored);
    else if (r->masked)
        sums_as(r, mean, sum, dot, r->above, r->masked, stored);
    else
        sums_as(r, mean, sum, dot, r->above, NULL, stored);
}

static AB_FORCE_INLINE void gradient_as(const ab_bn_rows *r, const ab_bn_factors *factors, const void *above,
                                        ab_bn_stored stored) {
    for (int64_t c = 0; c < r->channels; c += LANES) {
        const int n = columns_left(r->channels - c);
        const wide mean = wide_load_first(factors->mean + c, n);
        const wide scale = wide_load_first(factors->scale + c, n);
        const wide shift = wide_load_first(factors->shift + c, n);
        const wide slope = wide_load_first(factors->slope + c, n);
        for (int64_t at = c; at < r->rows * r->channels; at += r->channels) {
            const wide centred = wide_mul(wide_sub(load(r->x, at, n, stored), mean), slope);
            const wide d = wide_sub(wide_sub(load_dy(r, at, n, above, stored), shift), centred);
            store(r->out, at, wide_mul(d, scale), n, stored);
        }
    }
}

static AB_FORCE_INLINE void gradient(const ab_bn_rows *r, const ab_bn_factors *factors, ab_bn_stored stored) {
    if (r->above)
        gradient_as(r, factors, r->above, stored);
    else
        gradient_as(r, factors, NULL, stored);
}

static AB_FORCE_INLINE void scaled(const ab_bn_rows *r, const ab_bn_factors *factors, ab_bn_stored stored) {
    if (r->above)
        apply_as(r, factors, r->dy, NULL, r->above, false, stored);
    else
        apply_as(r, factors, r->dy, NULL, NULL, false, stored);
}

/* ---- one set of loops per format ------------------------------------------------------------- */

#define LOOPS(name, stored)                                                                                  \
    static void moments_##name(const ab_bn_rows *r, float *mean, float *m2) {                                \
        moments(r, mean, m2, stored);                                                                        \
    }                                                                                                        \
    static void apply_##name(const ab_bn_rows *r, const ab_bn_factors *f) { apply(r, f, stored); }           \
    static void sums_##name(const ab_bn_rows *r, const float *mean, float *sum, float *dot) {                \
        sums(r, mean, sum, dot, stored);                                                                     \
    }                                                                                                        \
    static void gradient_##name(const ab_bn_rows *r, const ab_bn_factors *f) { gradient(r, f, stored); }     \
    static void scaled_##name(const ab_bn_rows *r, const ab_bn_factors *f) { scaled(r, f, stored); }

LOOPS(fp32, AB_BN_FP32)
LOOPS(fp16, AB_BN_FP16)
LOOPS(bf16, AB_BN_BF16)

#define ROW(name)                                                                                            \
    { moments_##name, apply_##name, sums_##name, gradient_##name, scaled_##name }

extern const ab_vec_batch_norm PASTE(ab_vec_batch_norm_, AB_ISA_SUFFIX);
const ab_vec_batch_norm PASTE(ab_vec_batch_norm_, AB_ISA_SUFFIX) = {
    {[AB_BN_FP32] = ROW(fp32), [AB_BN_FP16] = ROW(fp16), [AB_BN_BF16] = ROW(bf16)}};
