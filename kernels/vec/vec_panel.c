/* The loops of vec_panel.h. The tile function is inlined once per width, so that its accumulators stay in
 * registers. */
#include "kernels/vec/vec_panel.h"

#include "kernels/vec/vec_wide.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

enum { WIDEST = LANES * MAX_VECTORS };

/* `vectors` vectors of columns from `at` on. Rows past the last repeat it. The loops are unrolled so that
 * compilers see that no sum needs memory. */
static AB_FORCE_INLINE void columns_tile(const ab_panel_tile *job, int64_t at, const int vectors) {
    wide sum[AB_PANEL_ROWS][MAX_VECTORS];
    const float *row[AB_PANEL_ROWS], *panel = job->panel + at;
    float *to[AB_PANEL_ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < AB_PANEL_ROWS; r++) {
        const int64_t own = r < job->rows ? r : job->rows - 1;
        row[r] = job->a + own * job->a_step;
        to[r] = job->c + own * job->c_step + at;
        const float *from = job->continues ? to[r] : job->start + at;
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
    for (int r = 0; r < AB_PANEL_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) wide_store(to[r] + v * LANES, sum[r][v]);
}

static void widest(const ab_panel_tile *job, int64_t at) { columns_tile(job, at, MAX_VECTORS); }
static void narrowest(const ab_panel_tile *job, int64_t at) { columns_tile(job, at, 1); }

static void tile(const ab_panel_tile *given) {
    static const float zeros[AB_PANEL];
    ab_panel_tile job = *given;
    int64_t at = 0;
    if (!job.start) job.start = zeros;
    for (; at + WIDEST <= job.columns; at += WIDEST) widest(&job, at);
    for (; at < job.columns; at += LANES) narrowest(&job, at);
}

extern const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX);
const ab_vec_panel PASTE(ab_vec_panel_, AB_ISA_SUFFIX) = {.tile = tile, .transpose = wide_transpose};
