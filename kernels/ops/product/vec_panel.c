/* The loops of vec_panel.h. The tile function is inlined once per width, so that its accumulators stay in
 * registers. */
#include "kernels/ops/product/vec_panel.h"

#include "kernels/format/vec_half.h"
#include "kernels/vec/vec_wide.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

enum { WIDEST = LANES * MAX_VECTORS };

/* Vectors of a row, rounded. */
static AB_FORCE_INLINE void round_row(uint16_t *to, const wide *sum, const ab_panel_kind kind,
                                      const int vectors) {
    _Alignas(64) float row[WIDEST];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) wide_store(row + v * LANES, sum[v]);
    if (kind == AB_PANEL_FP16)
        narrow_fp16(to, row, vectors * LANES);
    else
        narrow_bf16(to, row, vectors * LANES);
}

/* What one tile adds up: rows of a, a panel from its column `at` on. */
typedef struct tile_rows {
    const float *row[AB_PANEL_ROWS], *panel;
} tile_rows;

/* One step of the inner dimension. The loops are unrolled so that compilers see that no sum needs memory. */
static AB_FORCE_INLINE void add_step(wide (*sum)[MAX_VECTORS], const tile_rows *t, int64_t k, const int rows,
                                     const int vectors) {
    wide b[MAX_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) b[v] = wide_load(t->panel + k * AB_PANEL + v * LANES);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const float a = t->row[r][k];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = wide_fma(a, b[v], sum[r][v]);
    }
}

/* LANES values of each row of `ahead` from k on, widened. */
static AB_FORCE_INLINE void widen_ahead(const ab_panel_ahead *ahead, int64_t k, const ab_panel_kind kind) {
#pragma GCC unroll 6
    for (int r = 0; r < AB_PANEL_ROWS; r++) {
        const uint16_t *from = (const uint16_t *)ahead->from + r * ahead->from_step + k;
        float *to = ahead->to + r * ahead->to_step + k;
        if (kind == AB_PANEL_FP16)
            widen_fp16(to, from, LANES);
        else
            widen_bf16_operands(to, from, LANES);
    }
}

/* `rows` rows by `vectors` vectors of columns from `at` on, to c or rounded to `kind`; `ahead`: the format of
 * values that are widened meanwhile, or AB_PANEL_FP32. */
static AB_FORCE_INLINE void columns_tile(const ab_panel_tile *job, int64_t at, const int rows,
                                         const int vectors, const ab_panel_kind kind,
                                         const ab_panel_kind ahead) {
    static const float zeros[AB_PANEL];
    wide sum[AB_PANEL_ROWS][MAX_VECTORS];
    tile_rows t = {.panel = job->panel + at};
    float *to = job->c + at;
    const float *from = job->continues ? to : job->start ? job->start + at : zeros;
    const int64_t from_step = job->continues ? job->c_step : 0;
    int64_t k = 0;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        t.row[r] = job->a + r * job->a_step;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = wide_load(from + r * from_step + v * LANES);
    }
    if (ahead != AB_PANEL_FP32) {
        for (; k + LANES <= job->inner; k += LANES) {
            widen_ahead(job->ahead, k, ahead);
#pragma GCC unroll 4
            for (int64_t i = 0; i < LANES; i++) add_step(sum, &t, k + i, rows, vectors);
        }
    }
#pragma GCC unroll 4
    for (; k < job->inner; k++) add_step(sum, &t, k, rows, vectors);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        if (kind != AB_PANEL_FP32) {
            round_row(job->rounded + r * job->rounded_step + at, sum[r], kind, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) wide_store(to + r * job->c_step + v * LANES, sum[r][v]);
    }
}

typedef void (*tile_function)(const ab_panel_tile *job, int64_t at);

/* Functions by number of rows. */
#define TILE(name, rows, vectors, kind)                                                                      \
    static void name##_##rows(const ab_panel_tile *job, int64_t at) {                                        \
        columns_tile(job, at, rows, vectors, kind, AB_PANEL_FP32);                                           \
    }
#define TILES(name, vectors, kind)                                                                           \
    TILE(name, 1, vectors, kind)                                                                             \
    TILE(name, 2, vectors, kind)                                                                             \
    TILE(name, 3, vectors, kind)                                                                             \
    TILE(name, 4, vectors, kind) TILE(name, 5, vectors, kind) TILE(name, 6, vectors, kind)
#define NAMES(name)                                                                                          \
    { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
TILES(widest_fp32, MAX_VECTORS, AB_PANEL_FP32)
TILES(widest_fp16, MAX_VECTORS, AB_PANEL_FP16)
TILES(widest_bf16, MAX_VECTORS, AB_PANEL_BF16)
TILES(narrowest_fp32, 1, AB_PANEL_FP32)
TILES(narrowest_fp16, 1, AB_PANEL_FP16)
TILES(narrowest_bf16, 1, AB_PANEL_BF16)

/* Fewer registers than AVX-512 has do not suffice to widen beside the sums. */
enum { WIDENS = LANES >= 16 };

static void widening_fp16(const ab_panel_tile *job, int64_t at) {
    columns_tile(job, at, AB_PANEL_ROWS, MAX_VECTORS, AB_PANEL_FP32, AB_PANEL_FP16);
}
static void widening_bf16(const ab_panel_tile *job, int64_t at) {
    columns_tile(job, at, AB_PANEL_ROWS, MAX_VECTORS, AB_PANEL_FP32, AB_PANEL_BF16);
}

/* The values of `ahead` that the loop over whole vectors leaves. */
static void widen_rest(const ab_panel_ahead *ahead, int64_t from, int64_t end) {
    for (int64_t r = 0; from < end && r < AB_PANEL_ROWS; r++) {
        const uint16_t *half = (const uint16_t *)ahead->from + r * ahead->from_step;
        float *to = ahead->to + r * ahead->to_step;
        if (ahead->kind == AB_PANEL_FP16)
            widen_fp16(to + from, half + from, end - from);
        else
            widen_bf16_operands(to + from, half + from, end - from);
    }
}

static void tile(const ab_panel_tile *job) {
    static const tile_function widest[][AB_PANEL_ROWS] = {NAMES(widest_fp32), NAMES(widest_fp16),
                                                          NAMES(widest_bf16)};
    static const tile_function narrowest[][AB_PANEL_ROWS] = {NAMES(narrowest_fp32), NAMES(narrowest_fp16),
                                                             NAMES(narrowest_bf16)};
    static const tile_function widening[] = {NULL, widening_fp16, widening_bf16};
    const ab_panel_kind kind = job->rounded ? job->rounded_kind : AB_PANEL_FP32;
    const ab_panel_ahead *ahead = job->ahead;
    const bool fits =
        WIDENS && ahead && job->rows == AB_PANEL_ROWS && !job->rounded && job->columns >= WIDEST;
    int64_t at = 0;
    if (fits) {
        widening[ahead->kind](job, 0);
        at = WIDEST;
    }
    if (ahead) widen_rest(ahead, fits ? job->inner - job->inner % LANES : 0, job->inner);
    for (; at + WIDEST <= job->columns; at += WIDEST) widest[kind][job->rows - 1](job, at);
    for (; at < job->columns; at += LANES) narrowest[kind][job->rows - 1](job, at);
}

extern const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX);
const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX) = {.tile = tile, .transpose = wide_transpose};
