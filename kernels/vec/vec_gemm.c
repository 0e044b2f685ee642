/* The loops of vec_gemm.h: strips of columns, in each of them blocks of the inner dimension, in each of them
 * tiles of rows whose sums stay in registers. */
#include "kernels/vec/vec_gemm.h"

#include "kernels/vec/vec_wide.h"

#include <stdbool.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

/* INNER: of a block, whose part of b is in the L1 cache. */
enum { ROWS = 6, STRIP = LANES * MAX_VECTORS, INNER = 128 };

/* A block: b is [inner][strip] with columns side by side. */
typedef struct block {
    const ab_vec_product *p;
    const float *a, *b;
    float *c;
    int64_t b_step, inner, rows; /* rows: left, of which a tile takes ROWS */
    float beta;
} block;

/* c = alpha sum + beta c */
static AB_FORCE_INLINE void store(const block *x, float *c, wide sum, int n) {
    sum = wide_scale(x->p->alpha, sum);
    if (x->beta != 0.0f) sum = wide_add(sum, wide_scale(x->beta, wide_load_first(c, n)));
    wide_store_first(c, sum, n);
}

/* `vectors` vectors of columns, of which the last has `last` columns. Rows past the last repeat it. */
static AB_FORCE_INLINE void tile(const block *x, const int vectors, const int last) {
    wide sum[ROWS][MAX_VECTORS];
    const float *row[ROWS], *b = x->b;
    const int64_t a_inner = x->p->a_inner, inner = x->inner, rows = x->rows < ROWS ? x->rows : ROWS;
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; r++) {
        row[r] = x->a + (r < rows ? r : rows - 1) * x->p->a_row;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = wide_zero();
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < inner; k++, b += x->b_step) {
        wide line[MAX_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors - 1; v++) line[v] = wide_load(b + v * LANES);
        line[vectors - 1] = wide_load_first(b + (vectors - 1) * LANES, last);
#pragma GCC unroll 6
        for (int r = 0; r < ROWS; r++) {
            const float a = row[r][k * a_inner];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] = wide_fma(a, line[v], sum[r][v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            if (r < rows)
                store(x, x->c + r * x->p->c_row + v * LANES, sum[r][v], v < vectors - 1 ? LANES : last);
}

/* One function for each number of vectors, with the last one whole or not. */
#define TILES(vectors)                                                                                       \
    static void whole_##vectors(const block *x, int last) {                                                  \
        (void)last;                                                                                          \
        tile(x, (vectors) < MAX_VECTORS ? (vectors) : MAX_VECTORS, LANES);                                   \
    }                                                                                                        \
    static void part_##vectors(const block *x, int last) {                                                   \
        tile(x, (vectors) < MAX_VECTORS ? (vectors) : MAX_VECTORS, last);                                    \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)

/* The part of a block that a tile of rows needs. row: its first; first: the block's of the inner dimension;
 * column: the block's first. Returns the number of columns, 0 if there is nothing to do. */
static int64_t within_triangle(block *x, int64_t row, int64_t first, int64_t column, int64_t columns) {
    const ab_vec_product *p = x->p;
    const int64_t end = row + (x->rows < ROWS ? x->rows : ROWS) + p->diagonal; /* of the last row */
    if (p->triangle == AB_TRIANGLE_C) return columns < end - column ? columns : end - column;
    if (p->triangle == AB_TRIANGLE_A_BELOW) {
        x->inner = x->inner < end - first ? x->inner : end - first;
        x->inner = x->inner > 0 ? x->inner : 0;
    }
    if (p->triangle == AB_TRIANGLE_A_ABOVE) {
        int64_t skip = row - p->diagonal - first;
        skip = skip < 0 ? 0 : skip < x->inner ? skip : x->inner;
        x->a += skip * p->a_inner;
        x->b += skip * x->b_step;
        x->inner -= skip;
    }
    return x->inner > 0 || first == 0 ? columns : 0;
}

static void run_tile(const block *x, int64_t columns) {
    static void (*const tiles[2][4])(const block *, int) = {{part_1, part_2, part_3, part_4},
                                                            {whole_1, whole_2, whole_3, whole_4}};
    const int vectors = (int)((columns + LANES - 1) / LANES), last = (int)columns - (vectors - 1) * LANES;
    tiles[last == LANES][vectors - 1](x, last);
}

static void run_block(block x, int64_t first, int64_t column, int64_t columns) {
    for (int64_t row = 0; x.rows > 0; row += ROWS) {
        block needed = x;
        const int64_t wanted =
            x.p->triangle ? within_triangle(&needed, row, first, column, columns) : columns;
        /* whole vectors, of columns that exist */
        const int64_t whole = (wanted + LANES - 1) / LANES * LANES;
        if (wanted > 0) run_tile(&needed, whole < columns ? whole : columns);
        x.rows -= ROWS;
        x.a += ROWS * x.p->a_row;
        x.c += ROWS * x.p->c_row;
    }
}

/* ---- the last columns ------------------------------------------------------------------------ */

/* Columns behind the last multiple of DOT_LANES, if they are so few that a tile would compute mostly nothing,
 * and lie in memory along the inner dimension as the rows do. The rule is the same at every level. */
enum { DOT_LANES = 16, DOT_COLUMNS = 2, DOT_ROWS = 4, DOT_VECTORS = DOT_LANES / LANES };

static int64_t dot_columns(const ab_vec_product *p) {
    const int64_t last = p->columns % DOT_LANES;
    const bool along = p->a_inner == 1 && p->b_inner == 1 && !p->triangle;
    return along && last <= DOT_COLUMNS ? last : 0;
}

/* Adds products of DOT_LANES values, or of the first n of them; rows past the last repeat it. */
static AB_FORCE_INLINE void add_dots(wide sum[DOT_ROWS][DOT_VECTORS], const float *const *row, const float *b,
                                     const int64_t n) {
#pragma GCC unroll 4
    for (int v = 0; v < DOT_VECTORS; v++) {
        const int64_t at = v * LANES, left = n - at;
        const int count = left >= LANES ? LANES : left > 0 ? (int)left : 0;
        const wide line = n == DOT_LANES ? wide_load(b + at) : wide_load_first(b + at, count);
#pragma GCC unroll 4
        for (int r = 0; r < DOT_ROWS; r++) {
            const wide a = n == DOT_LANES ? wide_load(row[r] + at) : wide_load_first(row[r] + at, count);
            sum[r][v] = wide_fma_lanes(a, line, sum[r][v]);
        }
    }
}

/* c[r][0] of up to DOT_ROWS rows: 16 sums, joined as a binary tree. */
static void dot_tile(const ab_vec_product *p, const float *a, const float *b, float *c, int64_t rows) {
    wide sum[DOT_ROWS][DOT_VECTORS];
    const float *row[DOT_ROWS];
    const int64_t whole = p->inner - p->inner % DOT_LANES;
#pragma GCC unroll 4
    for (int r = 0; r < DOT_ROWS; r++) {
        row[r] = a + (r < rows ? r : rows - 1) * p->a_row;
#pragma GCC unroll 4
        for (int v = 0; v < DOT_VECTORS; v++) sum[r][v] = wide_zero();
    }
    for (int64_t k = 0; k < whole; k += DOT_LANES, b += DOT_LANES) {
        add_dots(sum, row, b, DOT_LANES);
        for (int r = 0; r < DOT_ROWS; r++) row[r] += DOT_LANES;
    }
    if (whole < p->inner) add_dots(sum, row, b, p->inner - whole);
    for (int r = 0; r < rows; r++) {
        for (int width = DOT_VECTORS / 2; width > 0; width /= 2)
            for (int v = 0; v < width; v++) sum[r][v] = wide_add(sum[r][v], sum[r][v + width]);
        float *to = c + r * p->c_row;
        const float value = p->alpha * wide_join(sum[r][0]);
        *to = p->beta != 0.0f ? value + p->beta * *to : value;
    }
}

static void run_dots(const ab_vec_product *p, int64_t column) {
    for (int64_t j = column; j < p->columns; j++)
        for (int64_t i = 0; i < p->rows; i += DOT_ROWS)
            dot_tile(p, p->a + i * p->a_row, p->b + j * p->b_column, p->c + i * p->c_row + j,
                     p->rows - i < DOT_ROWS ? p->rows - i : DOT_ROWS);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* b[k][j] of a block, side by side: in place or in `packed`. */
static void take_b(block *x, int64_t first, int64_t column, int64_t columns, float *packed) {
    const ab_vec_product *p = x->p;
    x->b = p->b + first * p->b_inner + column * p->b_column;
    x->b_step = p->b_inner;
    if (p->b_column == 1) return;
    wide_transpose(packed, STRIP, x->b, p->b_column, columns, x->inner);
    x->b = packed;
    x->b_step = STRIP;
}

static void multiply(const ab_vec_product *p) {
    _Alignas(64) float packed[INNER * STRIP];
    const int64_t end = p->columns - dot_columns(p);
    run_dots(p, end);
    for (int64_t column = 0; column < end; column += STRIP) {
        const int64_t columns = end - column < STRIP ? end - column : STRIP;
        for (int64_t first = 0; first == 0 || first < p->inner; first += INNER) {
            block x = {.p = p,
                       .a = p->a + first * p->a_inner,
                       .c = p->c + column,
                       .rows = p->rows,
                       .inner = p->inner - first < INNER ? p->inner - first : INNER,
                       .beta = first > 0 ? 1.0f : p->beta};
            take_b(&x, first, column, columns, packed);
            run_block(x, first, column, columns);
        }
    }
}

extern const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX);
const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX) = {.multiply = multiply};
