/* Calls of the tile unit; see amx.h. Compiled for it function by function, so that the rest of the program
 * runs on other CPUs. */
#define _GNU_SOURCE
#include "kernels/ops/product/amx.h"

#include "kernels/vec/isa.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

enum { TILE = AB_AMX_SIDE * AB_AMX_SIDE };

#define FOR_TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))

static once_flag once = ONCE_FLAG_INIT;
static bool allowed;

/* CPUID leaf 7: EDX bits 22 (AMX-BF16) and 24 (AMX-TILE). The kernel gives the registers to a process that
 * asks (arch_prctl, ARCH_REQ_XCOMP_PERM, feature 18). */
static void ask(void) {
    enum { LEAF = 7, BF16_BIT = 22, TILE_BIT = 24, REQUEST = 0x1023, TILE_DATA = 18 };
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    const bool has = __get_cpuid_count(LEAF, 0, &eax, &ebx, &ecx, &edx) && (edx >> BF16_BIT & 1U) &&
                     (edx >> TILE_BIT & 1U);
    allowed = has && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

bool ab_amx_is_usable(void) {
    call_once(&once, ask);
    return allowed && ab_isa_get() == AB_ISA_AVX512_BITALG;
}

#define EIGHT(x)                                                                                             \
    { x, x, x, x, x, x, x, x }

/* Eight tiles of 16 rows of 64 bytes. Constant, because gcc's ldtilecfg does not say that it reads all of it.
 */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} whole_tiles = {
    .palette = 1, .row_bytes = EIGHT(AB_AMX_INNER * sizeof(uint16_t)), .rows = EIGHT(AB_AMX_SIDE)};

FOR_TILES void ab_amx_begin(void) { _tile_loadconfig(&whole_tiles); }
FOR_TILES void ab_amx_end(void) { _tile_release(); }

/* Tile registers: 0 to 3 sums, 4 rows of a, 5 to 7 and again 5 columns of b. */
#define START(i)                                                                                             \
    if (i < p->tiles && from)                                                                                \
        _tile_loadd(i, from + (i)*AB_AMX_SIDE, from_bytes);                                                  \
    else                                                                                                     \
        _tile_zero(i)
#define ADD(i, b_register)                                                                                   \
    if (i < p->tiles) {                                                                                      \
        _tile_loadd(b_register, b + (i)*p->b_step, b_bytes);                                                 \
        _tile_dpbf16ps(i, 4, b_register);                                                                    \
    }
#define STORE(i)                                                                                             \
    if (i < p->tiles) _tile_stored(i, p->c + (i)*AB_AMX_SIDE, c_bytes)

FOR_TILES void ab_amx_multiply(const ab_amx_product *p) {
    const int64_t c_bytes = p->c_step * (int64_t)sizeof(float),
                  a_bytes = p->a_step * (int64_t)sizeof(uint16_t),
                  b_bytes = p->b_row * (int64_t)sizeof(uint16_t), from_bytes = p->continues ? c_bytes : 0;
    const float *from = p->continues ? p->c : p->start;
    const uint16_t *b = p->b;
    __asm__ volatile("" ::: "memory"); /* gcc's tile loads do not say that they read memory */
    START(0);
    START(1);
    START(2);
    START(3);
    for (int64_t k = 0; k < p->inner; k += AB_AMX_INNER, b += AB_AMX_SIDE * p->b_row) {
        _tile_loadd(4, p->a + k, a_bytes);
        ADD(0, 5)
        ADD(1, 6)
        ADD(2, 7)
        ADD(3, 5)
    }
    STORE(0);
    STORE(1);
    STORE(2);
    STORE(3);
}

#undef START
#undef ADD
#undef STORE

/* Tile registers: 0 to 3 sums, 4 to 7 operands. A bias is read as 16 rows that lie on each other. */
#define START()                                                                                              \
    _tile_loadd(0, p->bias[0], 0);                                                                           \
    _tile_loadd(1, p->bias[1], 0);                                                                           \
    _tile_loadd(2, p->bias[2], 0);                                                                           \
    _tile_loadd(3, p->bias[3], 0)
#define STORE()                                                                                              \
    _tile_stored(0, p->c[0], c_bytes);                                                                       \
    _tile_stored(1, p->c[1], c_bytes);                                                                       \
    _tile_stored(2, p->c[2], c_bytes);                                                                       \
    _tile_stored(3, p->c[3], c_bytes)
#define ADD(i, a_register)                                                                                   \
    _tile_loadd(a_register, p->a[i] + at, a_bytes);                                                          \
    _tile_dpbf16ps(i, a_register, 7)

FOR_TILES void ab_amx_convolve(const ab_amx_slide *p) {
    const int64_t a_bytes = p->a_step * (int64_t)sizeof(uint16_t),
                  row_bytes = AB_AMX_SIDE * (int64_t)sizeof(float),
                  c_bytes = p->c_step * (int64_t)sizeof(float);
    const uint16_t *b = p->b[0];
    __asm__ volatile("" ::: "memory");
    START();
    for (int64_t t = 0; t < p->runs; t++)
        for (int64_t k = 0; k < p->run; k += AB_AMX_INNER, b += AB_AMX_INNER * AB_AMX_SIDE) {
            const int64_t at = t * p->run_step + k;
            _tile_loadd(7, b, row_bytes);
            ADD(0, 4);
            ADD(1, 5);
            ADD(2, 6);
            ADD(3, 4);
        }
    STORE();
    __asm__ volatile("" ::: "memory");
}

FOR_TILES void ab_amx_convolve_pairs(const ab_amx_slide *p) {
    const int64_t a_bytes = p->a_step * (int64_t)sizeof(uint16_t),
                  row_bytes = AB_AMX_SIDE * (int64_t)sizeof(float),
                  c_bytes = p->c_step * (int64_t)sizeof(float);
    int64_t w = 0;
    __asm__ volatile("" ::: "memory");
    START();
    for (int64_t t = 0; t < p->runs; t++)
        for (int64_t k = 0; k < p->run; k += AB_AMX_INNER, w += AB_AMX_INNER * AB_AMX_SIDE) {
            const int64_t at = t * p->run_step + k;
            _tile_loadd(6, p->b[0] + w, row_bytes);
            _tile_loadd(4, p->a[0] + at, a_bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, p->b[1] + w, row_bytes);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, p->a[2] + at, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    STORE();
    __asm__ volatile("" ::: "memory");
}

#undef START
#undef STORE
#undef ADD

FOR_TILES void ab_amx_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows,
                                 int64_t columns, int64_t inner) {
    const __mmask16 live = (__mmask16)((1U << (unsigned)columns) - 1U);
    for (int64_t k = 0; k < inner; k += 2, to += 2 * AB_AMX_SIDE) {
        const __mmask16 first = k < rows ? live : 0, second = k + 1 < rows ? live : 0;
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, from + k * step)),
                      high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, from + (k + 1) * step));
        _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

FOR_TILES void ab_amx_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n) {
    for (int64_t i = 0; i < n; i += AB_AMX_SIDE) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + i)),
                      high = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + apart));
        _mm512_storeu_si512(to + 2 * i, _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                                        _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
    }
}

/* Eight rows of 16: in the halves of out[j], columns j and j + 8. */
FOR_TILES static inline void turn_rows(const __m256i *r, __m256i *out) {
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

FOR_TILES void ab_amx_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step,
                           int64_t rows, int64_t columns) {
    const __mmask16 live = (__mmask16)((1U << (unsigned)columns) - 1U);
    __m256i row[AB_AMX_SIDE], top[8], bottom[8];
    for (int r = 0; r < AB_AMX_SIDE; r++)
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

bool ab_amx_is_usable(void) { return false; }

/* Never called. */
void ab_amx_begin(void) {}
void ab_amx_end(void) {}
void ab_amx_multiply(const ab_amx_product *product) { (void)product; }
void ab_amx_convolve(const ab_amx_slide *slide) { (void)slide; }
void ab_amx_convolve_pairs(const ab_amx_slide *slide) { (void)slide; }
void ab_amx_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows, int64_t columns,
                       int64_t inner) {
    (void)to, (void)from, (void)step, (void)rows, (void)columns, (void)inner;
}
void ab_amx_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n) {
    (void)to, (void)from, (void)apart, (void)n;
}
void ab_amx_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step, int64_t rows,
                 int64_t columns) {
    (void)to, (void)to_step, (void)from, (void)from_step, (void)rows, (void)columns;
}

#endif
