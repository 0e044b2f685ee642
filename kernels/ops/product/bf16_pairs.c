/* Values of bf16 in pairs and transposed; see bf16_unit.h. Compiled for AVX-512 function by function, so that
 * the rest of the program runs on other CPUs. */
#include "kernels/ops/product/bf16_unit.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define FOR_PAIRS __attribute__((target("avx512f,avx512bw,avx512vl")))

FOR_PAIRS void ab_bf16_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows,
                                  int64_t columns, int64_t inner) {
    const __mmask16 live = (__mmask16)((1U << (unsigned)columns) - 1U);
    for (int64_t k = 0; k < inner; k += 2, to += 2 * AB_BF16_SIDE) {
        const __mmask16 first = k < rows ? live : 0, second = k + 1 < rows ? live : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, from + k * step)),
                      high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, from + (k + 1) * step));
        _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

FOR_PAIRS void ab_bf16_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n) {
    for (int64_t i = 0; i < n; i += AB_BF16_SIDE) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + i)),
                      high = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + apart));
        _mm512_storeu_si512(to + 2 * i, _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                                        _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
    }
}

/* Eight rows of 16: in the halves of out[j], columns j and j + 8. */
FOR_PAIRS static inline void turn_rows(const __m256i *r, __m256i *out) {
    __m256i pair[8], four[8];
    for (int i = 0; i < 4; i++) {
        pair[2 * i] = _mm256_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        pair[2 * i + 1] = _mm256_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int side = 0; side < 2; side++) {
            four[4 * i + 2 * side] = _mm256_unpacklo_epi32(pair[4 * i + side], pair[4 * i + 2 + side]);
            four[4 * i + 2 * side + 1] = _mm256_unpackhi_epi32(pair[4 * i + side], pair[4 * i + 2 + side]);
        }
    for (int j = 0; j < 4; j++) {
        out[2 * j] = _mm256_unpacklo_epi64(four[j], four[j + 4]);
        out[2 * j + 1] = _mm256_unpackhi_epi64(four[j], four[j + 4]);
    }
}

FOR_PAIRS void ab_bf16_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step,
                            int64_t rows, int64_t columns) {
    const __mmask16 live = (__mmask16)((1U << (unsigned)columns) - 1U);
    __m256i row[AB_BF16_SIDE], top[8], bottom[8];
    for (int r = 0; r < AB_BF16_SIDE; r++)
        row[r] = _mm256_maskz_loadu_epi16(r < rows ? live : 0, from + r * from_step);
    turn_rows(row, top);
    turn_rows(row + 8, bottom);
    for (int j = 0; j < 8; j++) {
        _mm256_storeu_si256((__m256i *)(void *)(to + j * to_step),
                            _mm256_permute2x128_si256(top[j], bottom[j], 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(to + (j + 8) * to_step),
                            _mm256_permute2x128_si256(top[j], bottom[j], 0x31));
    }
}

#else

/* Never called. */
void ab_bf16_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows, int64_t columns,
                        int64_t inner) {
    (void)to, (void)from, (void)step, (void)rows, (void)columns, (void)inner;
}
void ab_bf16_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n) {
    (void)to, (void)from, (void)apart, (void)n;
}
void ab_bf16_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step, int64_t rows,
                  int64_t columns) {
    (void)to, (void)to_step, (void)from, (void)from_step, (void)rows, (void)columns;
}

#endif
