/* Products of bf16 pairs in the tiles of AMX; see bf16_unit.h. A thread loads its configuration of tiles
 * before products and releases it after them. Compiled for it function by function, so that the rest of the
 * program runs on other CPUs. */
#define _GNU_SOURCE
#include "kernels/ops/product/bf16_unit.h"

#include <stddef.h>

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

enum { SIDE = AB_BF16_SIDE, INNER = 32 }; /* a tile: 16 rows of 32 values */

#define FOR_TILES __attribute__((target("amx-tile,amx-bf16")))

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

#define EIGHT(x)                                                                                             \
    { x, x, x, x, x, x, x, x }

/* Eight tiles of 16 rows of 64 bytes. Constant, because gcc's ldtilecfg does not say that it reads all of it.
 */
static const struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} whole_tiles = {.palette = 1, .row_bytes = EIGHT(INNER * sizeof(uint16_t)), .rows = EIGHT(SIDE)};

FOR_TILES static void begin(void) { _tile_loadconfig(&whole_tiles); }
FOR_TILES static void end(void) { _tile_release(); }

/* Tile registers: 0 to 3 sums, 4 rows of a, 5 to 7 and again 5 columns of b. */
#define START(i)                                                                                             \
    if ((i) < p->tiles && from)                                                                              \
        _tile_loadd(i, from + (i)*SIDE, from_bytes);                                                         \
    else                                                                                                     \
        _tile_zero(i)
#define ADD(i, b_register)                                                                                   \
    if ((i) < p->tiles) {                                                                                    \
        _tile_loadd(b_register, b + (i)*p->b_step, b_bytes);                                                 \
        _tile_dpbf16ps(i, 4, b_register);                                                                    \
    }
#define STORE(i)                                                                                             \
    if ((i) < p->tiles) _tile_stored(i, c + (i)*SIDE, c_bytes)

/* 16 rows, one run. */
FOR_TILES static void add_rows(const ab_bf16_product *p, int64_t row) {
    const int64_t c_bytes = p->c_step * (int64_t)sizeof(float),
                  a_bytes = p->a_step * (int64_t)sizeof(uint16_t),
                  b_bytes = p->b_row * (int64_t)sizeof(uint16_t), from_bytes = p->continues ? c_bytes : 0;
    float *c = p->c + row * p->c_step;
    const float *from = p->continues ? c : p->start;
    const uint16_t *a = p->a + row * p->a_step, *b = p->b;
    __asm__ volatile("" ::: "memory"); /* gcc's tile loads do not say that they read memory */
    START(0);
    START(1);
    START(2);
    START(3);
    for (int64_t k = 0; k < p->inner; k += INNER, b += SIDE * p->b_row) {
        _tile_loadd(4, a + k, a_bytes);
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

/* Four tiles i of sums in several runs: rows of a and the columns of b that they take. */
typedef struct slide {
    const uint16_t *a[4], *b[4];
    float *c[4];
    const float *start[4]; /* 16 values */
    const ab_bf16_product *of;
} slide;

/* Tile registers: 0 to 3 sums, 4 to 7 operands. What sums start from is read as 16 rows that lie on each
 * other. */
#define START()                                                                                              \
    _tile_loadd(0, s->start[0], 0);                                                                          \
    _tile_loadd(1, s->start[1], 0);                                                                          \
    _tile_loadd(2, s->start[2], 0);                                                                          \
    _tile_loadd(3, s->start[3], 0)
#define STORE()                                                                                              \
    _tile_stored(0, s->c[0], c_bytes);                                                                       \
    _tile_stored(1, s->c[1], c_bytes);                                                                       \
    _tile_stored(2, s->c[2], c_bytes);                                                                       \
    _tile_stored(3, s->c[3], c_bytes)
#define ADD(i, a_register)                                                                                   \
    _tile_loadd(a_register, s->a[i] + at, a_bytes);                                                          \
    _tile_dpbf16ps(i, a_register, 7)

/* Tiles that have one b. */
FOR_TILES static void slide_rows(const slide *s) {
    const ab_bf16_product *p = s->of;
    const int64_t a_bytes = p->a_step * (int64_t)sizeof(uint16_t), row_bytes = SIDE * (int64_t)sizeof(float),
                  c_bytes = p->c_step * (int64_t)sizeof(float);
    __asm__ volatile("" ::: "memory");
    START();
    for (int64_t t = 0; t < p->runs; t++)
        for (int64_t k = 0; k < p->inner; k += INNER) {
            const int64_t at = t * p->run_step + k;
            _tile_loadd(7, s->b[0] + t * p->b_run + k * SIDE, row_bytes);
            ADD(0, 4);
            ADD(1, 5);
            ADD(2, 6);
            ADD(3, 4);
        }
    STORE();
    __asm__ volatile("" ::: "memory");
}

/* Tiles 0 and 1, 2 and 3 have one a; 0 and 2, 1 and 3 one b. */
FOR_TILES static void slide_pairs(const slide *s) {
    const ab_bf16_product *p = s->of;
    const int64_t a_bytes = p->a_step * (int64_t)sizeof(uint16_t), row_bytes = SIDE * (int64_t)sizeof(float),
                  c_bytes = p->c_step * (int64_t)sizeof(float);
    __asm__ volatile("" ::: "memory");
    START();
    for (int64_t t = 0; t < p->runs; t++)
        for (int64_t k = 0; k < p->inner; k += INNER) {
            const int64_t at = t * p->run_step + k, w = t * p->b_run + k * SIDE;
            _tile_loadd(6, s->b[0] + w, row_bytes);
            _tile_loadd(4, s->a[0] + at, a_bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, s->b[1] + w, row_bytes);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, s->a[2] + at, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    STORE();
    __asm__ volatile("" ::: "memory");
}

#undef START
#undef STORE
#undef ADD

/* What sums of a product in several runs start from. */
static const float *start_of(const ab_bf16_product *p, int tile) {
    static const float zeros[SIDE];
    return p->start ? p->start + tile * SIDE : zeros;
}

/* Two tiles of rows by two of columns, or four by one. */
static void multiply_runs(const ab_bf16_product *p) {
    const int across = p->tiles % 2 == 0 ? 2 : 1, down = 4 / across;
    slide s = {.of = p};
    for (int tile = 0; tile < p->tiles; tile += across)
        for (int64_t row = 0; row < p->rows; row += down * (int64_t)SIDE) {
            for (int i = 0; i < 4; i++) {
                const int64_t at = row + i / across * (int64_t)SIDE;
                const int own = tile + i % across;
                s.a[i] = p->a + at * p->a_step;
                s.b[i] = p->b + own * p->b_step;
                s.c[i] = p->c + at * p->c_step + own * SIDE;
                s.start[i] = start_of(p, own);
            }
            (across == 2 ? slide_pairs : slide_rows)(&s);
        }
}

static void multiply(const ab_bf16_product *p) {
    if (p->runs > 1) {
        multiply_runs(p);
        return;
    }
    for (int64_t row = 0; row < p->rows; row += SIDE) add_rows(p, row);
}

const ab_bf16_unit *ab_bf16_unit_amx(void) {
    static const ab_bf16_unit unit = {
        .name = "amx_bf16", .rows = SIDE, .inner = INNER, .begin = begin, .end = end, .multiply = multiply};
    call_once(&once, ask);
    return allowed ? &unit : NULL;
}

#else

const ab_bf16_unit *ab_bf16_unit_amx(void) { return NULL; }

#endif
