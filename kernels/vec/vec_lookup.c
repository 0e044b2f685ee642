/* The loops of vec_lookup.h. */
#include "kernels/vec/vec_lookup.h"

#include "kernels/vec/isa.h"

#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)

enum { LANES16 = 32, LANES32 = 16 };

/* The first n of 32 or 16 lanes; none for n < 0. */
static inline __mmask32 first16(int64_t n) {
    return n >= LANES16 ? 0xffffffffu : n <= 0 ? 0 : (1u << (unsigned)n) - 1u;
}
static inline __mmask16 first32(int64_t n) {
    return (__mmask16)(n >= LANES32 ? 0xffffu : n <= 0 ? 0 : (1u << (unsigned)n) - 1u);
}

#endif

/* ---- AVX-512 with VBMI ----------------------------------------------------------------------- */

#if defined(__AVX512VBMI__)

enum { BLOCK = 64, PLANE = 4 }; /* bytes of a register; registers of a plane */

static void prepare(ab_lookup_table *table, const void *values, int bytes) {
    const uint8_t *byte = values;
    table->bytes = bytes;
    for (int i = 0; i < AB_LOOKUP; i++)
        for (int k = 0; k < bytes; k++) table->as.byte_plane[k][i] = byte[i * bytes + k];
}

typedef struct plane {
    __m512i part[PLANE];
} plane;

static inline plane load_plane(const ab_lookup_table *table, int k) {
    plane p;
    for (int i = 0; i < PLANE; i++) p.part[i] = _mm512_loadu_si512(table->as.byte_plane[k] + i * BLOCK);
    return p;
}

static inline __m512i find(const plane *p, __m512i index) {
    const __m512i low = _mm512_permutex2var_epi8(p->part[0], index, p->part[1]),
                  high = _mm512_permutex2var_epi8(p->part[2], index, p->part[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

static inline __m512i load_indices(const uint8_t *from, int64_t n) {
    return n >= BLOCK ? _mm512_loadu_si512(from)
                      : _mm512_maskz_loadu_epi8((UINT64_C(1) << (unsigned)n) - 1u, from);
}

/* Unpacking works within lanes of 128 bits: indices are put so that its results are in order. */
static void look_up_halves(uint16_t *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    const plane low = load_plane(table, 0), high = load_plane(table, 1);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (; n > 0; n -= BLOCK, from += BLOCK, to += BLOCK) {
        const __m512i index = _mm512_permutexvar_epi64(order, load_indices(from, n)), a = find(&low, index),
                      b = find(&high, index);
        _mm512_mask_storeu_epi16(to, first16(n), _mm512_unpacklo_epi8(a, b));
        _mm512_mask_storeu_epi16(to + LANES16, first16(n - LANES16), _mm512_unpackhi_epi8(a, b));
    }
}

static void look_up_words(float *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    const plane p0 = load_plane(table, 0), p1 = load_plane(table, 1), p2 = load_plane(table, 2),
                p3 = load_plane(table, 3);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (; n > 0; n -= BLOCK, from += BLOCK, to += BLOCK) {
        const __m512i index = _mm512_permutexvar_epi32(order, load_indices(from, n));
        const __m512i a = find(&p0, index), b = find(&p1, index), c = find(&p2, index), d = find(&p3, index);
        const __m512i low[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)},
                      high[2] = {_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d)};
        for (int k = 0; k < 2; k++) {
            const int at = 2 * k * LANES32;
            _mm512_mask_storeu_epi32(to + at, first32(n - at), _mm512_unpacklo_epi16(low[k], high[k]));
            _mm512_mask_storeu_epi32(to + at + LANES32, first32(n - at - LANES32),
                                     _mm512_unpackhi_epi16(low[k], high[k]));
        }
    }
}

/* ---- AVX-512 --------------------------------------------------------------------------------- */

#elif defined(__AVX512F__)

enum { BLOCK = LANES16, PLANE = 8 };

static void prepare(ab_lookup_table *table, const void *values, int bytes) {
    const uint16_t *half = values;
    const int planes = bytes / 2;
    table->bytes = bytes;
    for (int i = 0; i < AB_LOOKUP; i++)
        for (int k = 0; k < planes; k++) table->as.half_plane[k][i] = half[i * planes + k];
}

typedef struct plane {
    __m512i part[PLANE];
} plane;

static inline plane load_plane(const ab_lookup_table *table, int k) {
    plane p;
    for (int i = 0; i < PLANE; i++) p.part[i] = _mm512_loadu_si512(table->as.half_plane[k] + i * BLOCK);
    return p;
}

static inline __m512i find(const plane *p, __m512i index) {
    const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                    bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
    __m512i of[PLANE / 2];
    for (int i = 0; i < PLANE / 2; i++)
        of[i] = _mm512_permutex2var_epi16(p->part[2 * i], index, p->part[2 * i + 1]);
    return _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, of[0], of[1]),
                                   _mm512_mask_blend_epi16(bit6, of[2], of[3]));
}

static inline __m512i load_indices(const uint8_t *from, int64_t n) {
    return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(first16(n), from));
}

static void look_up_halves(uint16_t *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    const plane only = load_plane(table, 0);
    for (; n > 0; n -= BLOCK, from += BLOCK, to += BLOCK)
        _mm512_mask_storeu_epi16(to, first16(n), find(&only, load_indices(from, n)));
}

/* Unpacking works within lanes of 128 bits: indices are put so that its results are in order. */
static void look_up_words(float *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    const plane low = load_plane(table, 0), high = load_plane(table, 1);
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (; n > 0; n -= BLOCK, from += BLOCK, to += BLOCK) {
        const __m512i index = _mm512_permutexvar_epi64(order, load_indices(from, n)), a = find(&low, index),
                      b = find(&high, index);
        _mm512_mask_storeu_epi32(to, first32(n), _mm512_unpacklo_epi16(a, b));
        _mm512_mask_storeu_epi32(to + LANES32, first32(n - LANES32), _mm512_unpackhi_epi16(a, b));
    }
}

/* ---- one by one ------------------------------------------------------------------------------ */

#else

static void prepare(ab_lookup_table *table, const void *values, int bytes) {
    table->bytes = bytes;
    memcpy(&table->as, values, AB_LOOKUP * (size_t)bytes);
}

/* Values are stored in vectors: the stores of single ones wait for one another. */
static void look_up_halves(uint16_t *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    enum { RUN = 8 };
    const uint16_t *half = table->as.half;
    int64_t i = 0;
    for (; i + RUN <= n; i += RUN) {
        const uint8_t *x = from + i;
        const uint16_t run[RUN] = {half[x[0]], half[x[1]], half[x[2]], half[x[3]],
                                   half[x[4]], half[x[5]], half[x[6]], half[x[7]]};
        memcpy(to + i, run, sizeof run);
    }
    for (; i < n; i++) to[i] = half[from[i]];
}

static void look_up_words(float *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    enum { RUN = 4 };
    const float *word = table->as.word;
    int64_t i = 0;
    for (; i + RUN <= n; i += RUN) {
        const float run[RUN] = {word[from[i]], word[from[i + 1]], word[from[i + 2]], word[from[i + 3]]};
        memcpy(to + i, run, sizeof run);
    }
    for (; i < n; i++) to[i] = word[from[i]];
}

#endif

static void look_up(void *to, const ab_lookup_table *table, const uint8_t *from, int64_t n) {
    if (table->bytes == 4)
        look_up_words(to, table, from, n);
    else
        look_up_halves(to, table, from, n);
}

AB_ISA_TABLE(ab_vec_lookup) = {.prepare = prepare, .look_up = look_up};
