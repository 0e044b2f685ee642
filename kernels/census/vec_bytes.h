/* Byte vectors of the CPU level a file is compiled for (isa.h; cmake/Rooms.cmake): the operations of the
 * census kernel under common names for AVX2 and AVX-512. Bit i of a mask belongs to byte i of the vector.
 *
 * Only vec_census.c includes this, and only where one of the levels is compiled. */
#ifndef AB_KERNELS_CENSUS_VEC_BYTES_H
#define AB_KERNELS_CENSUS_VEC_BYTES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512BW__)

enum { VEC_BYTES = 64, VEC_FLOATS = 16 };
typedef __m512i bytes;
typedef __m512 floats;

static inline bytes bytes_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void bytes_store(void *p, bytes v) { _mm512_storeu_si512(p, v); }
static inline bytes bytes_set8(int x) { return _mm512_set1_epi8((char)x); }
static inline bytes bytes_set16(int x) { return _mm512_set1_epi16((short)x); }
static inline bytes bytes_and(bytes a, bytes b) { return _mm512_and_si512(a, b); }
static inline bytes bytes_or(bytes a, bytes b) { return _mm512_or_si512(a, b); }
static inline bytes bytes_add8(bytes a, bytes b) { return _mm512_add_epi8(a, b); }
static inline bytes bytes_add16(bytes a, bytes b) { return _mm512_add_epi16(a, b); }
static inline bytes bytes_sub8(bytes a, bytes b) { return _mm512_sub_epi8(a, b); }
static inline bytes bytes_min8(bytes a, bytes b) { return _mm512_min_epu8(a, b); }
static inline bytes bytes_min16(bytes a, bytes b) { return _mm512_min_epu16(a, b); }
static inline bytes bytes_max16(bytes a, bytes b) { return _mm512_max_epu16(a, b); }

/* a == b ? value : v, per byte */
static inline bytes bytes_set_where_equal(bytes v, bytes a, bytes b, bytes value) {
    return _mm512_mask_mov_epi8(v, _mm512_cmpeq_epi8_mask(a, b), value);
}
static inline uint64_t bytes_mask_equal(bytes a, bytes b) { return _mm512_cmpeq_epi8_mask(a, b); }
static inline bool bytes_any_at_most(bytes a, bytes limit) { return _mm512_cmple_epu8_mask(a, limit) != 0; }
static inline bool words_any_at_least(bytes a, bytes limit) { return _mm512_cmpge_epu16_mask(a, limit) != 0; }
static inline bool words_any_zero(bytes a) { return _mm512_testn_epi16_mask(a, a) != 0; }
/* Whether the lower 16 of each 32 bits are zero. */
static inline bool words_even_all_zero(bytes a) {
    return _mm512_mask_test_epi16_mask(0x55555555u, a, a) == 0;
}
/* v + 1 where a word of a is not zero. */
static inline bytes words_add_where_set(bytes v, bytes a) {
    return _mm512_mask_add_epi16(v, _mm512_test_epi16_mask(a, a), v, _mm512_set1_epi16(1));
}
/* Converts bytes for comparison by bytes_keep_above. */
static inline bytes bytes_ordered(bytes a) { return a; }
/* v where a byte of a is above `limit`, else 0; both converted by bytes_ordered. */
static inline bytes bytes_keep_above(bytes v, bytes a, bytes limit) {
    return _mm512_maskz_mov_epi8(_mm512_cmpgt_epu8_mask(a, limit), v);
}
/* Full adder of three bits, for every bit of the vectors. */
static inline bytes bytes_carry(bytes a, bytes b, bytes c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0xe8);
}
static inline bytes bytes_sum(bytes a, bytes b, bytes c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }

static inline floats floats_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void floats_store(float *p, floats v) { _mm512_storeu_ps(p, v); }
static inline floats floats_load_fp16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline floats floats_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* The bf16 values of v at even and at odd positions. */
static inline floats floats_even(bytes v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
static inline floats floats_odd(bytes v) {
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(-65536)));
}
static inline floats floats_zero(void) { return _mm512_setzero_ps(); }
static inline floats floats_add_square(floats sum, floats v) {
    return _mm512_add_ps(sum, _mm512_mul_ps(v, v));
}
/* The same for exact squares. */
static inline floats floats_add_exact_square(floats sum, floats v) { return _mm512_fmadd_ps(v, v, sum); }
static inline bytes floats_bits(floats v) { return _mm512_castps_si512(v); }

#else

enum { VEC_BYTES = 32, VEC_FLOATS = 8 };
typedef __m256i bytes;
typedef __m256 floats;

static inline bytes bytes_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void bytes_store(void *p, bytes v) { _mm256_storeu_si256((__m256i *)p, v); }
static inline bytes bytes_set8(int x) { return _mm256_set1_epi8((char)x); }
static inline bytes bytes_set16(int x) { return _mm256_set1_epi16((short)x); }
static inline bytes bytes_and(bytes a, bytes b) { return _mm256_and_si256(a, b); }
static inline bytes bytes_or(bytes a, bytes b) { return _mm256_or_si256(a, b); }
static inline bytes bytes_add8(bytes a, bytes b) { return _mm256_add_epi8(a, b); }
static inline bytes bytes_add16(bytes a, bytes b) { return _mm256_add_epi16(a, b); }
static inline bytes bytes_sub8(bytes a, bytes b) { return _mm256_sub_epi8(a, b); }
static inline bytes bytes_min8(bytes a, bytes b) { return _mm256_min_epu8(a, b); }
static inline bytes bytes_min16(bytes a, bytes b) { return _mm256_min_epu16(a, b); }
static inline bytes bytes_max16(bytes a, bytes b) { return _mm256_max_epu16(a, b); }

static inline bytes bytes_set_where_equal(bytes v, bytes a, bytes b, bytes value) {
    return _mm256_blendv_epi8(v, value, _mm256_cmpeq_epi8(a, b));
}
static inline uint64_t bytes_mask_equal(bytes a, bytes b) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b));
}
static inline bool bytes_any_at_most(bytes a, bytes limit) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(a, limit), a)) != 0;
}
static inline bool words_any_at_least(bytes a, bytes limit) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(_mm256_max_epu16(a, limit), a)) != 0;
}
static inline bool words_any_zero(bytes a) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi16(a, _mm256_setzero_si256())) != 0;
}
static inline bool words_even_all_zero(bytes a) {
    return _mm256_testz_si256(a, _mm256_set1_epi32(0xffff)) != 0;
}
static inline bytes words_add_where_set(bytes v, bytes a) {
    bytes less = _mm256_cmpeq_epi16(a, _mm256_setzero_si256()); /* -1 where zero */
    return _mm256_add_epi16(_mm256_add_epi16(v, _mm256_set1_epi16(1)), less);
}
static inline bytes bytes_ordered(bytes a) { return _mm256_xor_si256(a, bytes_set8(0x80)); }
static inline bytes bytes_keep_above(bytes v, bytes a, bytes limit) {
    return _mm256_and_si256(_mm256_cmpgt_epi8(a, limit), v);
}
static inline bytes bytes_carry(bytes a, bytes b, bytes c) {
    return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(_mm256_xor_si256(a, b), c));
}
static inline bytes bytes_sum(bytes a, bytes b, bytes c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static inline floats floats_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void floats_store(float *p, floats v) { _mm256_storeu_ps(p, v); }
static inline floats floats_load_fp16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline floats floats_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline floats floats_even(bytes v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
static inline floats floats_odd(bytes v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(-65536)));
}
static inline floats floats_zero(void) { return _mm256_setzero_ps(); }
static inline floats floats_add_square(floats sum, floats v) {
    return _mm256_add_ps(sum, _mm256_mul_ps(v, v));
}
static inline floats floats_add_exact_square(floats sum, floats v) { return _mm256_fmadd_ps(v, v, sum); }
static inline bytes floats_bits(floats v) { return _mm256_castps_si256(v); }

#endif

/* ---- operations that depend on more than the vector width ------------------------------------ */

/* The upper 16 bits of the fp32 values of a and b, one 16-bit word each. */
static inline bytes bytes_high_words(bytes a, bytes b) {
#if defined(__AVX512VBMI__)
    const bytes odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
                                       27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
#elif defined(__AVX512BW__)
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(a, 16), b);
#else
    return _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
#endif
}

/* The lower 16 bits, in the same order. */
static inline bytes bytes_low_words(bytes a, bytes b) {
#if defined(__AVX512VBMI__)
    const bytes even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
                                        28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi16(a, even, b);
#elif defined(__AVX512BW__)
    return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16));
#else
    return _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
#endif
}

/* The upper and the lower bytes of the 16-bit words of a and b. */
static inline void bytes_split(bytes a, bytes b, bytes *upper, bytes *lower) {
#if defined(__AVX512VBMI__)
    const bytes odd =
        _mm512_set_epi64(0x7f7d7b7977757371, 0x6f6d6b6967656361, 0x5f5d5b5957555351, 0x4f4d4b4947454341,
                         0x3f3d3b3937353331, 0x2f2d2b2927252321, 0x1f1d1b1917151311, 0x0f0d0b0907050301);
    const bytes even =
        _mm512_set_epi64(0x7e7c7a7876747270, 0x6e6c6a6866646260, 0x5e5c5a5856545250, 0x4e4c4a4846444240,
                         0x3e3c3a3836343230, 0x2e2c2a2826242220, 0x1e1c1a1816141210, 0x0e0c0a0806040200);
    *upper = _mm512_permutex2var_epi8(a, odd, b);
    *lower = _mm512_permutex2var_epi8(a, even, b);
#else
    const __m128i apart = _mm_set_epi8(14, 12, 10, 8, 6, 4, 2, 0, 15, 13, 11, 9, 7, 5, 3, 1);
#if defined(__AVX512BW__)
    a = _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(apart));
    b = _mm512_shuffle_epi8(b, _mm512_broadcast_i32x4(apart));
    *upper = _mm512_unpacklo_epi64(a, b);
    *lower = _mm512_unpackhi_epi64(a, b);
#else
    a = _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(apart));
    b = _mm256_shuffle_epi8(b, _mm256_broadcastsi128_si256(apart));
    *upper = _mm256_unpacklo_epi64(a, b);
    *lower = _mm256_unpackhi_epi64(a, b);
#endif
#endif
}

/* For four vectors of floats a, b, c, d that went through bytes_split(bytes_high_words(a, b),
 * bytes_high_words(c, d), ..): the index, from a's first value, of the value now in byte i. */
static inline int bytes_origin(int i) {
#if defined(__AVX512VBMI__)
    return i;
#else
    int lane = i / 16, word = i % 8, half = i / 8 % 2;
    return (half * 2 + word % 2) * VEC_FLOATS + lane * 4 + word / 2;
#endif
}

/* The same for the 16-bit words of two vectors a and b that went through bytes_split(a, b, ..). */
static inline int bytes_origin_of_words(int i) {
#if defined(__AVX512VBMI__)
    return i;
#else
    int lane = i / 16, word = i % 8, half = i / 8 % 2;
    return half * (VEC_BYTES / 2) + lane * 8 + word;
#endif
}

/* A window of up to 7 groups of 8 numbers, first .. first + 8 * groups - 1. Numbers are mapped to places,
 * so that a shuffle gives one-hot bytes for one group and 0 for all others. */
typedef struct window {
    bytes first, end;
} window;

static inline window window_of(int first, int groups) {
#if defined(__AVX512VBMI__)
    window w = {bytes_set8(first), bytes_set8(8 * groups)};
#else
    window w = {bytes_set8(first), bytes_set8(0x80 - 8 * groups)}; /* numbers outside get bit 7 */
#endif
    return w;
}

static inline bytes window_place(const window *w, bytes number) {
    bytes place = bytes_sub8(number, w->first);
#if defined(__AVX512VBMI__)
    return bytes_min8(place, bytes_set8(63));
#elif defined(__AVX512BW__)
    return _mm512_adds_epu8(place, w->end);
#else
    return _mm256_adds_epu8(place, w->end);
#endif
}

enum { PLACE_NONE = 0xff }; /* the place of a number outside any window */

/* Mask of the bytes whose place is outside the window. */
static inline uint64_t window_mask_outside(const window *w, bytes place) {
#if defined(__AVX512VBMI__)
    return _mm512_cmpge_epu8_mask(place, w->end);
#elif defined(__AVX512BW__)
    (void)w;
    return _mm512_movepi8_mask(place);
#else
    (void)w;
    return (uint32_t)_mm256_movemask_epi8(place);
#endif
}

/* Group `group` of a window of `groups`: place 8 * group + b of the window maps to 1 << b, others to 0.
 */
typedef struct one_hot {
    bytes table, start;
} one_hot;

static inline one_hot one_hot_of_group(int group, int groups) {
    static const uint8_t bit[136] = {[64] = 1, 2, 4, 8, 16, 32, 64, 128};
#if defined(__AVX512VBMI__)
    (void)groups;
    one_hot h = {bytes_load(bit + 64 - 8 * group), bytes_set8(0)};
#else
    int from_end = groups - group; /* 1: the last; a table holds two groups, the odd one in the upper half */
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)(bit + 64 - from_end % 2 * 8));
    int start = 0x80 - (from_end + 1) / 2 * 16; /* place of the table's first number */
#if defined(__AVX512BW__)
    one_hot h = {_mm512_broadcast_i32x4(table), bytes_set8(start)};
#else
    one_hot h = {_mm256_broadcastsi128_si256(table), bytes_set8(start)};
#endif
#endif
    return h;
}

/* few: the window has at most two groups. A shuffle uses four index bits and gives 0 where bit 7 is set;
 * in larger windows, places are first shifted to the pair of groups in the table. */
static inline bytes one_hot_of(const one_hot *h, bytes place, bool few) {
#if defined(__AVX512VBMI__)
    (void)few;
    return _mm512_permutexvar_epi8(place, h->table);
#elif defined(__AVX512BW__)
    if (!few) place = _mm512_adds_epu8(bytes_sub8(place, h->start), bytes_set8(0x70));
    return _mm512_shuffle_epi8(h->table, place);
#else
    if (!few) place = _mm256_adds_epu8(bytes_sub8(place, h->start), bytes_set8(0x70));
    return _mm256_shuffle_epi8(h->table, place);
#endif
}

/* Appends first + i for every bit i set in mask to `list`, which must have room for 64 more entries.
 * Returns the number appended. */
static inline int bytes_list(uint16_t *list, uint64_t mask, int first) {
#if defined(__AVX512VBMI2__)
    const bytes places =
        _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130, 0x2f2e2d2c2b2a2928, 0x2726252423222120,
                         0x1f1e1d1c1b1a1918, 0x1716151413121110, 0x0f0e0d0c0b0a0908, 0x0706050403020100);
    int n = (int)_mm_popcnt_u64(mask);
    bytes set = _mm512_maskz_compress_epi8(mask, places), start = bytes_set16(first);
    bytes_store(list, bytes_add16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(set)), start));
    if (n > 32)
        bytes_store(list + 32, bytes_add16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(set, 1)), start));
#else
    int n = (int)_mm_popcnt_u64(mask);
    /* Always stores three, which is cheaper than an unpredictable branch: one mask in thirty has more. */
    uint64_t second = mask & (mask - 1), third = second & (second - 1);
    uint64_t entries = _tzcnt_u64(mask) | _tzcnt_u64(second) << 16 | _tzcnt_u64(third) << 32;
    entries += (uint64_t)first * 0x000100010001;
    memcpy(list, &entries, sizeof entries); /* little-endian */
    mask = third & (third - 1);
    for (int i = 3; i < n; i++, mask &= mask - 1) list[i] = (uint16_t)(first + (int)_tzcnt_u64(mask));
#endif
    return n;
}

/* count[b] += weight * number of bytes with bit b set */
static inline void bytes_count_bits(uint64_t count[8], bytes v, unsigned weight) {
#if defined(__AVX512BITALG__) && defined(__GFNI__)
    /* The 8 x 8 bit matrix of each group of 8 bytes is transposed, so that a byte holds all eight copies
     * of a bit. */
    const bytes unit = _mm512_set1_epi64((long long)0x8040201008040201);
    bytes v512 = _mm512_popcnt_epi8(_mm512_gf2p8affine_epi64_epi8(unit, v, 0)); /* a byte is at most 8 */
    __m256i v256 = _mm256_add_epi8(_mm512_castsi512_si256(v512), _mm512_extracti64x4_epi64(v512, 1));
    __m128i v128 = _mm_add_epi8(_mm256_castsi256_si128(v256), _mm256_extracti128_si256(v256, 1));
    uint64_t sums = (uint64_t)_mm_cvtsi128_si64(_mm_add_epi8(v128, _mm_unpackhi_epi64(v128, v128)));
    for (int b = 0; b < 8; b++) count[b] += (sums >> 8 * b & 255) * weight;
#else
    for (int b = 7; b >= 0; b--) {
#if defined(__AVX512BW__)
        uint64_t mask = _mm512_movepi8_mask(v);
#else
        uint64_t mask = (uint32_t)_mm256_movemask_epi8(v);
#endif
        count[b] += (uint64_t)_mm_popcnt_u64(mask) * weight;
        v = bytes_add8(v, v);
    }
#endif
}

#endif
