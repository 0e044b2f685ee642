/* The unit of AMX tiles (kernels/ops/product/bf16_unit_amx.c) with its instructions carried out by this file,
 * so that what it computes is tested on CPUs without AMX. Linked into tests of ops in place of the unit of
 * the library (tests/CMakeLists.txt). TDPBF16PS as in Intel's manual: the products of a tile are summed from
 * zero, a fused multiply-add each, and then added; subnormal operands and sums are zero. */
#define _GNU_SOURCE
#include "kernels/ops/product/bf16_unit.h"

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS = 8, ROWS = 16, ROW_BYTES = 64 };

/* Bytes of every tile register, and of the configuration that was loaded. */
static _Thread_local struct {
    unsigned char tile[REGISTERS][ROWS][ROW_BYTES];
    unsigned char rows[REGISTERS];
    uint16_t row_bytes[REGISTERS];
    int configured;
} state;

/* Whole tiles only, which is what the file configures. */
static void load_configuration(const void *configuration) {
    const unsigned char *bytes = configuration;
    if (bytes[0] != 1) abort();
    memcpy(state.row_bytes, bytes + 16, sizeof state.row_bytes);
    memcpy(state.rows, bytes + 48, sizeof state.rows);
    for (int i = 0; i < REGISTERS; i++)
        if (state.rows[i] != ROWS || state.row_bytes[i] != ROW_BYTES) abort();
    state.configured = 1;
}

static void need_configuration(void) {
    if (!state.configured) abort(); /* a general protection fault on the CPU */
}

static void release(void) { memset(&state, 0, sizeof state); }

static void load(int to, const void *from, int64_t step) {
    need_configuration();
    for (int r = 0; r < ROWS; r++) memcpy(state.tile[to][r], (const char *)from + r * step, ROW_BYTES);
}

static void store(int from, void *to, int64_t step) {
    need_configuration();
    for (int r = 0; r < ROWS; r++) memcpy((char *)to + r * step, state.tile[from][r], ROW_BYTES);
}

static void zero(int tile) {
    need_configuration();
    memset(state.tile[tile], 0, sizeof state.tile[tile]);
}

static float without_subnormals(float value) { return fabsf(value) < FLT_MIN ? 0 * value : value; }

static float value_of(const unsigned char *row, int i) {
    uint16_t code;
    memcpy(&code, row + (size_t)i * sizeof code, sizeof code);
    const uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return without_subnormals(value);
}

static void multiply_tiles(int sums, int a, int b) {
    need_configuration();
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < ROWS; n++) {
            float sum = 0, before;
            for (int k = 0; k < ROWS; k++)
                for (int half = 0; half < 2; half++)
                    sum = without_subnormals(fmaf(value_of(state.tile[a][m], 2 * k + half),
                                                  value_of(state.tile[b][k], 2 * n + half), sum));
            unsigned char *at = state.tile[sums][m] + (size_t)n * sizeof before;
            memcpy(&before, at, sizeof before);
            sum = without_subnormals(without_subnormals(before) + sum);
            memcpy(at, &sum, sizeof sum);
        }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig load_configuration
#define _tile_release release
#define _tile_loadd load
#define _tile_stored store
#define _tile_zero zero
#define _tile_dpbf16ps multiply_tiles

#define ab_bf16_unit_amx unit_of_this_cpu /* its name in this file */
const ab_bf16_unit *unit_of_this_cpu(void);
#include "kernels/ops/product/bf16_unit_amx.c"
#undef ab_bf16_unit_amx

const ab_bf16_unit *ab_bf16_unit_amx(void) {
    static ab_bf16_unit emulated;
    (void)unit_of_this_cpu();
    emulated = (ab_bf16_unit){
        .name = "amx_bf16", .rows = SIDE, .inner = INNER, .begin = begin, .end = end, .multiply = multiply};
    return &emulated;
}
