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

/* `vectors` vectors of columns from `at` on, to c or rounded to `kind`. Rows past the last repeat it. The
 * loops are unrolled so that compilers see that no sum needs memory. */
static AB_FORCE_INLINE void columns_tile(const ab_panel_tile *job, int64_t at, const int vectors,
                                         const ab_panel_kind kind) {
    static const float zeros[AB_PANEL];
    wide sum[AB_PANEL_ROWS][MAX_VECTORS];
    const float *row[AB_PANEL_ROWS], *panel = job->panel + at;
    const float *start = job->start ? job->start + at : zeros;
    float *to[AB_PANEL_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < AB_PANEL_ROWS; r++) {
        const int64_t own = r < job->rows ? r : job->rows - 1;
        row[r] = job->a + own * job->a_step;
        to[r] = job->c + own * job->c_step + at;
        const float *from = job->continues ? to[r] : start;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = wide_load(from + v * LANES);
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < job->inner; k++, panel += AB_PANEL) {
        wide b[MAX_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) b[v] = wide_load(panel + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < AB_PANEL_ROWS; r++) {
            const float a = row[r][k];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] = wide_fma(a, b[v], sum[r][v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < AB_PANEL_ROWS; r++) {
        const int64_t own = r < job->rows ? r : job->rows - 1;
        if (kind != AB_PANEL_FP32) {
            round_row(job->rounded + own * job->rounded_step + at, sum[r], kind, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) wide_store(to[r] + v * LANES, sum[r][v]);
    }
}

#define TILES(name, kind)                                                                                    \
    static void widest_##name(const ab_panel_tile *job, int64_t at) {                                        \
        columns_tile(job, at, MAX_VECTORS, kind);                                                            \
    }                                                                                                        \
    static void narrowest_##name(const ab_panel_tile *job, int64_t at) { columns_tile(job, at, 1, kind); }
TILES(fp32, AB_PANEL_FP32)
TILES(fp16, AB_PANEL_FP16)
TILES(bf16, AB_PANEL_BF16)

static void tile(const ab_panel_tile *job) {
    static void (*const widest[])(const ab_panel_tile *, int64_t) = {widest_fp32, widest_fp16, widest_bf16};
    static void (*const narrowest[])(const ab_panel_tile *, int64_t) = {narrowest_fp32, narrowest_fp16,
                                                                        narrowest_bf16};
    const ab_panel_kind kind = job->rounded ? job->rounded_kind : AB_PANEL_FP32;
    int64_t at = 0;
    for (; at + WIDEST <= job->columns; at += WIDEST) widest[kind](job, at);
    for (; at < job->columns; at += LANES) narrowest[kind](job, at);
}

extern const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX);
const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX) = {.tile = tile, .transpose = wide_transpose};
