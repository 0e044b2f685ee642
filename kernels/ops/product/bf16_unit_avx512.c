/* Products of bf16 pairs in vectors of 16 sums; see bf16_unit.h. A block of sums stays in registers over the
 * whole inner dimension: of 6 rows four tiles wide, else of 8 rows. Each pair of a
 * is broadcast. Compiled for AVX512-BF16 function by function, so that the rest of the program runs on other
 * CPUs. */
#include "kernels/ops/product/bf16_unit.h"

#include <stddef.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define FOR_VECTORS __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE FOR_VECTORS static inline __attribute__((always_inline))

enum { SIDE = AB_BF16_SIDE, MOST_SUMS = 24, LINE = 64 };

/* A pair anywhere in memory. */
typedef struct {
    int32_t values;
} __attribute__((packed, may_alias)) pair;

INLINE void fetch_stored(const ab_bf16_product *p, int64_t row, const int rows) {
    if (!p->stored) return;
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t at = 0; at < p->stored_bytes; at += LINE)
            __builtin_prefetch(p->stored + r * p->stored_step + at, 1, 3);
}

/* Rows [row, row + rows) of a product, `tiles` wide; both are constants where it is inlined. */
INLINE void add_block(const ab_bf16_product *p, int64_t row, const int rows, const int tiles) {
    float *c = p->c + row * p->c_step;
    __m512 sum[MOST_SUMS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < tiles; t++)
            sum[r * tiles + t] = p->continues ? _mm512_loadu_ps(c + r * p->c_step + t * SIDE)
                                 : p->start   ? _mm512_loadu_ps(p->start + t * SIDE)
                                              : _mm512_setzero_ps();
    fetch_stored(p, row, rows);
    for (int64_t run = 0; run < p->runs; run++) {
        const uint16_t *a = p->a + row * p->a_step + run * p->run_step, *b = p->b + run * p->b_run;
        for (int64_t k = 0; k < p->inner; k += 2, b += p->b_row, a += 2) {
            __m512i column[AB_BF16_TILES];
#pragma GCC unroll 4
            for (int t = 0; t < tiles; t++) column[t] = _mm512_loadu_si512(b + t * p->b_step);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const __m512i both =
                    _mm512_set1_epi32(((const pair *)(const void *)(a + r * p->a_step))->values);
#pragma GCC unroll 4
                for (int t = 0; t < tiles; t++)
                    sum[r * tiles + t] =
                        _mm512_dpbf16_ps(sum[r * tiles + t], (__m512bh)both, (__m512bh)column[t]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int t = 0; t < tiles; t++) _mm512_storeu_ps(c + r * p->c_step + t * SIDE, sum[r * tiles + t]);
}

#define BLOCK(high, tiles)                                                                                   \
    case high:                                                                                               \
        add_block(p, row, high, tiles);                                                                      \
        break;

/* The rows of a product, as even as can be in blocks of at most `most`. */
#define ROWS(name, tiles, most, MORE)                                                                        \
    FOR_VECTORS static void name(const ab_bf16_product *p) {                                                 \
        const int64_t blocks = (p->rows + (most)-1) / (most);                                                \
        for (int64_t i = 0; i < blocks; i++) {                                                               \
            const int64_t row = p->rows * i / blocks;                                                        \
            switch (p->rows * (i + 1) / blocks - row) {                                                      \
                BLOCK(1, tiles)                                                                              \
                BLOCK(2, tiles)                                                                              \
                BLOCK(3, tiles)                                                                              \
                BLOCK(4, tiles)                                                                              \
                BLOCK(5, tiles)                                                                              \
                BLOCK(6, tiles)                                                                              \
                MORE(tiles)                                                                                  \
            default:                                                                                         \
                break;                                                                                       \
            }                                                                                                \
        }                                                                                                    \
    }
#define NO_MORE(tiles)
#define TO_EIGHT(tiles) BLOCK(7, tiles) BLOCK(8, tiles)

ROWS(one_wide, 1, 8, TO_EIGHT)
ROWS(two_wide, 2, 8, TO_EIGHT)
ROWS(three_wide, 3, 8, TO_EIGHT)
ROWS(four_wide, 4, 6, NO_MORE)

static void multiply(const ab_bf16_product *p) {
    static void (*const wide[])(const ab_bf16_product *) = {one_wide, two_wide, three_wide, four_wide};
    wide[p->tiles - 1](p);
}

static void nothing(void) {}

/* CPUID leaf 7, subleaf 1: EAX bit 5. That the system saves the registers is part of the CPU level. */
const ab_bf16_unit *ab_bf16_unit_avx512(void) {
    enum { LEAF = 7, BF16_BIT = 5 };
    static const ab_bf16_unit unit = {
        .name = "avx512_bf16", .rows = 1, .inner = 2, .begin = nothing, .end = nothing, .multiply = multiply};
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool has = __get_cpuid_count(LEAF, 1, &eax, &ebx, &ecx, &edx) && (eax >> BF16_BIT & 1U);
    return has ? &unit : NULL;
}

#else

const ab_bf16_unit *ab_bf16_unit_avx512(void) { return NULL; }

#endif
