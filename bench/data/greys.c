/* Sixteen bytes at a time where there is SSE2, which every x86-64 has. */
#include "bench/data/greys.h"

static void add_each(const uint8_t *pixel, int64_t n, ab_grey_sums *sums) {
    for (int64_t i = 0; i < n; i++) sums->sum += pixel[i];
    for (int64_t i = 0; i < n; i++) sums->squares += (uint64_t)pixel[i] * pixel[i];
}

#if defined(__SSE2__)

#include <emmintrin.h>

enum { VECTOR = 16, MOST_VECTORS = 1 << 12 }; /* each adds at most 4 * 255^2 to a lane of 32 bits */

/* n: a multiple of VECTOR, at most MOST_VECTORS of them. */
static void add_vectors(const uint8_t *pixel, int64_t n, ab_grey_sums *sums) {
    const __m128i zero = _mm_setzero_si128();
    __m128i sum = zero, squares = zero; /* two lanes of 64 bits, four of 32 */
    for (int64_t i = 0; i < n; i += VECTOR) {
        const __m128i grey = _mm_loadu_si128((const __m128i *)(const void *)(pixel + i)),
                      low = _mm_unpacklo_epi8(grey, zero), high = _mm_unpackhi_epi8(grey, zero);
        sum = _mm_add_epi64(sum, _mm_sad_epu8(grey, zero));
        squares = _mm_add_epi32(squares, _mm_add_epi32(_mm_madd_epi16(low, low), _mm_madd_epi16(high, high)));
    }
    uint64_t sum_lane[2];
    uint32_t square_lane[4];
    _mm_storeu_si128((__m128i *)(void *)sum_lane, sum);
    _mm_storeu_si128((__m128i *)(void *)square_lane, squares);
    sums->sum += sum_lane[0] + sum_lane[1];
    for (int k = 0; k < 4; k++) sums->squares += square_lane[k];
}

ab_grey_sums ab_grey_sums_of(const uint8_t *pixel, int64_t n) {
    ab_grey_sums total = {0, 0};
    const int64_t whole = n - n % VECTOR, part = (int64_t)VECTOR * MOST_VECTORS;
    for (int64_t i = 0; i < whole; i += part)
        add_vectors(pixel + i, whole - i < part ? whole - i : part, &total);
    add_each(pixel + whole, n - whole, &total);
    return total;
}

#else

ab_grey_sums ab_grey_sums_of(const uint8_t *pixel, int64_t n) {
    ab_grey_sums total = {0, 0};
    add_each(pixel, n, &total);
    return total;
}

#endif
