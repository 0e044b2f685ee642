/* The loops of vec_panel.h. The tile function is inlined once per width, so that its accumulators stay in
 * registers. */
#include "kernels/ops/product/vec_panel.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"
#include "kernels/vec/vec_wide.h"

/* STEPS_A_LINE: so that the lines of a tile are spread over an inner dimension of a hundred. */
enum { WIDEST = LANES * MAX_VECTORS, LINE = 64, STEPS_A_LINE = 4 };

/* Vectors of a row, rounded. */
static AB_FORCE_INLINE void round_row(uint16_t *to, const wide *sum, const ab_stored stored,
                                      const int vectors) {
    _Alignas(64) float row[WIDEST];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) wide_store(row + v * LANES, sum[v]);
    narrow_stored(to, row, stored, vectors * LANES);
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

/* Lines of the cache that are written next. */
typedef struct results_ahead {
    const char *row;
    int64_t rows, row_bytes, step, at;
} results_ahead;

static AB_FORCE_INLINE results_ahead next_results(const ab_panel_tile *job, int64_t at, const int rows,
                                                  const int vectors, const ab_stored stored) {
    const bool plain = stored == AB_STORED_FP32;
    const int64_t step = (int64_t)ab_stored_bytes(stored, plain ? job->c_step : job->rounded_step);
    const char *row = plain ? (const char *)(job->c + at) : (const char *)(job->rounded + at);
    return (results_ahead){.row = row + rows * step,
                           .rows = job->next_rows,
                           .row_bytes = (int64_t)ab_stored_bytes(stored, vectors * LANES),
                           .step = step};
}

static AB_FORCE_INLINE void fetch_line(results_ahead *next) {
    __builtin_prefetch(next->row + next->at, 1, 3);
    next->at += LINE;
    if (next->at < next->row_bytes) return;
    next->row += next->step;
    next->rows--;
    next->at = 0;
}

/* Steps between which lines are fetched one by one: all at once would hold up the loads of the product.
 * Returns how many steps. */
static AB_FORCE_INLINE int64_t add_fetching(wide (*sum)[MAX_VECTORS], const tile_rows *t, int64_t inner,
                                            const int rows, const int vectors, results_ahead next) {
    int64_t k = 0;
    for (; next.rows > 0 && k + STEPS_A_LINE <= inner; k += STEPS_A_LINE) {
        fetch_line(&next);
#pragma GCC unroll 4
        for (int64_t i = 0; i < STEPS_A_LINE; i++) add_step(sum, t, k + i, rows, vectors);
    }
    while (next.rows > 0) fetch_line(&next);
    return k;
}

/* Row r's LANES values of `ahead` from k on, widened. */
static AB_FORCE_INLINE void widen_ahead(const ab_panel_ahead *ahead, int64_t r, int64_t k,
                                        const ab_stored stored) {
    const uint16_t *from = (const uint16_t *)ahead->from + r * ahead->from_step + k;
    float *to = ahead->to + r * ahead->to_step + k;
    widen_stored(to, from, stored, LANES);
}

/* As many steps as a vector has lanes, between which a vector of each row of `ahead`, which is local to the
 * caller so that no store changes it, is widened. */
static AB_FORCE_INLINE void add_steps(wide (*sum)[MAX_VECTORS], const tile_rows *t, int64_t k, const int rows,
                                      const int vectors, const ab_panel_ahead *ahead,
                                      const ab_stored stored) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < LANES; i++) {
#pragma GCC unroll 2
        for (int64_t r = i; r < AB_PANEL_ROWS; r += LANES) widen_ahead(ahead, r, k, stored);
        add_step(sum, t, k + i, rows, vectors);
    }
}

/* `rows` rows by `vectors` vectors of columns from `at` on, to c or rounded to `stored`; `ahead`: the format
 * of values that are widened meanwhile, or AB_STORED_FP32. */
static AB_FORCE_INLINE void columns_tile(const ab_panel_tile *job, int64_t at, const int rows,
                                         const int vectors, const ab_stored stored, const ab_stored ahead) {
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
    if (ahead != AB_STORED_FP32) {
        const ab_panel_ahead next = *job->ahead;
        for (; k + LANES <= job->inner; k += LANES) add_steps(sum, &t, k, rows, vectors, &next, ahead);
    } else {
        const results_ahead next = next_results(job, at, rows, vectors, stored);
        k = add_fetching(sum, &t, job->inner, rows, vectors, next);
    }
#pragma GCC unroll 4
    for (; k < job->inner; k++) add_step(sum, &t, k, rows, vectors);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        if (stored != AB_STORED_FP32) {
            round_row(job->rounded + r * job->rounded_step + at, sum[r], stored, vectors);
            continue;
        }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) wide_store(to + r * job->c_step + v * LANES, sum[r][v]);
    }
}

typedef void (*tile_function)(const ab_panel_tile *job, int64_t at);

/* Functions by number of rows. */
#define TILE(name, rows, vectors, stored)                                                                    \
    static void name##_##rows(const ab_panel_tile *job, int64_t at) {                                        \
        columns_tile(job, at, rows, vectors, stored, AB_STORED_FP32);                                        \
    }
#define TILES(name, vectors, stored)                                                                         \
    TILE(name, 1, vectors, stored)                                                                           \
    TILE(name, 2, vectors, stored)                                                                           \
    TILE(name, 3, vectors, stored)                                                                           \
    TILE(name, 4, vectors, stored) TILE(name, 5, vectors, stored) TILE(name, 6, vectors, stored)
#define NAMES(name)                                                                                          \
    { name##_1, name##_2, name##_3, name##_4, name##_5, name##_6 }
TILES(widest_fp32, MAX_VECTORS, AB_STORED_FP32)
TILES(widest_fp16, MAX_VECTORS, AB_STORED_FP16)
TILES(widest_bf16, MAX_VECTORS, AB_STORED_BF16)
TILES(narrowest_fp32, 1, AB_STORED_FP32)
TILES(narrowest_fp16, 1, AB_STORED_FP16)
TILES(narrowest_bf16, 1, AB_STORED_BF16)

/* Without vectors of eight, to widen beside the sums saves nothing. */
enum { WIDENS = LANES >= 8 };

static void widening_fp16(const ab_panel_tile *job, int64_t at) {
    columns_tile(job, at, AB_PANEL_ROWS, MAX_VECTORS, AB_STORED_FP32, AB_STORED_FP16);
}
static void widening_bf16(const ab_panel_tile *job, int64_t at) {
    columns_tile(job, at, AB_PANEL_ROWS, MAX_VECTORS, AB_STORED_FP32, AB_STORED_BF16);
}

/* The values of `ahead` that the loop over whole vectors leaves. */
static void widen_rest(const ab_panel_ahead *ahead, int64_t from, int64_t end) {
    for (int64_t r = 0; from < end && r < AB_PANEL_ROWS; r++) {
        const uint16_t *half = (const uint16_t *)ahead->from + r * ahead->from_step;
        float *to = ahead->to + r * ahead->to_step;
        widen_stored(to + from, half + from, ahead->stored, end - from);
    }
}

static void tile(const ab_panel_tile *job) {
    static const tile_function widest[][AB_PANEL_ROWS] = {NAMES(widest_fp32), NAMES(widest_fp16),
                                                          NAMES(widest_bf16)};
    static const tile_function narrowest[][AB_PANEL_ROWS] = {NAMES(narrowest_fp32), NAMES(narrowest_fp16),
                                                             NAMES(narrowest_bf16)};
    static const tile_function widening[] = {NULL, widening_fp16, widening_bf16};
    const ab_stored stored = job->rounded ? job->rounded_as : AB_STORED_FP32;
    const ab_panel_ahead *ahead = job->ahead;
    const bool fits =
        WIDENS && ahead && job->rows == AB_PANEL_ROWS && !job->rounded && job->columns >= WIDEST;
    int64_t at = 0;
    if (fits) {
        widening[ahead->stored](job, 0);
        at = WIDEST;
    }
    if (ahead) widen_rest(ahead, fits ? job->inner - job->inner % LANES : 0, job->inner);
    for (; at + WIDEST <= job->columns; at += WIDEST) widest[stored][job->rows - 1](job, at);
    for (; at < job->columns; at += LANES) narrowest[stored][job->rows - 1](job, at);
}

/* ---- turned values --------------------------------------------------------------------------- */

/* SIDE: rows and columns that turn_eight turns. STRIP: halves of a row that are widened at a time, a line of
 * the cache. GROUP: values of a row that are rounded at a time. */
enum { SIDE = 8, STRIP = 32, GROUP = 16 };

/* Turns up to SIDE rows of up to STRIP halves. */
static AB_FORCE_INLINE void turn_strip(float *dst, int64_t dst_step, const uint16_t *from, int64_t from_step,
                                       const int64_t rows, const int64_t columns, const ab_stored stored) {
    _Alignas(64) float widened[SIDE][STRIP];
    int64_t c = 0;
    for (int64_t r = 0; r < rows; r++) {
        widen_stored(widened[r], from + r * from_step, stored, columns);
    }
    for (; rows == SIDE && c + SIDE <= columns; c += SIDE)
        turn_eight(dst + c * dst_step, dst_step, widened[0] + c, STRIP);
    for (; c < columns; c++)
        for (int64_t r = 0; r < rows; r++) dst[c * dst_step + r] = widened[r][c];
}

static AB_FORCE_INLINE void turn_halves(float *dst, int64_t dst_step, const ab_panel_part *from,
                                        const ab_stored stored) {
    const uint16_t *half = from->data;
    for (int64_t c = 0; c < from->columns; c += STRIP) {
        const int64_t columns = from->columns - c < STRIP ? from->columns - c : STRIP;
        for (int64_t r = 0; r < from->rows; r += SIDE) {
            const int64_t rows = from->rows - r < SIDE ? from->rows - r : SIDE;
            float *to = dst + c * dst_step + r;
            if (rows == SIDE && columns == STRIP)
                turn_strip(to, dst_step, half + r * from->step + c, from->step, SIDE, STRIP, stored);
            else
                turn_strip(to, dst_step, half + r * from->step + c, from->step, rows, columns, stored);
        }
    }
}

static void turn_part(float *dst, int64_t dst_step, const ab_panel_part *from) {
    if (from->stored == AB_STORED_FP32)
        wide_transpose(dst, dst_step, from->data, from->step, from->rows, from->columns);
    else if (from->stored == AB_STORED_FP16)
        turn_halves(dst, dst_step, from, AB_STORED_FP16);
    else
        turn_halves(dst, dst_step, from, AB_STORED_BF16);
}

static AB_FORCE_INLINE void add_bias(float *sums, const float *bias, int64_t count, int64_t rows) {
    for (int64_t c = 0; c < count; c++) {
        float *sum = sums + c * AB_PANEL;
        const wide add = wide_set(bias[c]);
        for (int64_t r = 0; r < rows; r += LANES) wide_store(sum + r, wide_add(wide_load(sum + r), add));
    }
}

/* n: at most GROUP. */
static AB_FORCE_INLINE void store_group(const ab_panel_part *to, int64_t r, int64_t c, const float *value,
                                        const int64_t n, const ab_stored stored) {
    uint16_t *half = (uint16_t *)to->data + r * to->step + c;
    narrow_stored(half, value, stored, n);
}

static AB_FORCE_INLINE void turn_sums(const ab_panel_part *to, const float *sums, const ab_stored stored) {
    _Alignas(64) float turned[SIDE][GROUP];
    for (int64_t c = 0; c < to->columns; c += GROUP) {
        const int64_t n = to->columns - c < GROUP ? to->columns - c : GROUP;
        for (int64_t r = 0; r < to->rows; r += SIDE) {
            for (int half = 0; half < GROUP; half += SIDE)
                turn_eight(turned[0] + half, GROUP, sums + (c + half) * AB_PANEL + r, AB_PANEL);
            for (int64_t i = 0; i < SIDE && r + i < to->rows; i++) {
                if (n == GROUP)
                    store_group(to, r + i, c, turned[i], GROUP, stored);
                else
                    store_group(to, r + i, c, turned[i], n, stored);
            }
        }
    }
}

static void store_turned(const ab_panel_part *to, float *sums, const float *bias) {
    if (bias) add_bias(sums, bias, to->columns, to->rows);
    if (to->stored == AB_STORED_FP32)
        wide_transpose(to->data, to->step, sums, AB_PANEL, to->columns, to->rows);
    else if (to->stored == AB_STORED_FP16)
        turn_sums(to, sums, AB_STORED_FP16);
    else
        turn_sums(to, sums, AB_STORED_BF16);
}

AB_ISA_TABLE(ab_vec_panel) = {
    .tile = tile, .transpose = wide_transpose, .turn = turn_part, .store_turned = store_turned};
