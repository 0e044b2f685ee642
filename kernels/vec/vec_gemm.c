/* The loops of vec_gemm.h: strips of columns, in each of them blocks of the inner dimension, in each of them
 * tiles of rows whose sums stay in registers. */
#include "kernels/vec/vec_gemm.h"

#include "kernels/vec/vec_wide.h"

#include <stdbool.h>

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

/* ROWS by VECTORS sums of a tile stay in registers. INNER: of a block, whose part of b is in the L1 cache. */
#if defined(__AVX512F__)
enum { ROWS = 8, VECTORS = 2 };
#else
enum { ROWS = 6, VECTORS = MAX_VECTORS };
#endif
enum { STRIP = LANES * VECTORS, INNER = 128 };

/* A block: b is [inner][strip] with columns side by side. Of a triangle, row r of a tile lacks the first, or
 * the last, r values of the inner dimension that others have; see add_triangle. */
typedef struct block {
    const ab_vec_product *p;
    const float *a, *b;
    float *c;
    int64_t b_step, inner, rows; /* rows: left */
    int64_t from, to;            /* values of the inner dimension that all rows of a tile have */
    float beta;
} block;

/* What a tile reads, and its sums. */
typedef struct tile_sums {
    const float *row[ROWS], *b;
    int64_t a_inner, b_step;
    wide sum[ROWS][VECTORS];
} tile_sums;

/* Adds value k of the inner dimension to rows [first, end). */
static AB_FORCE_INLINE void add_step(tile_sums *t, int64_t k, const int first, const int end,
                                     const int vectors, const int last) {
    const float *b = t->b + k * t->b_step;
    wide line[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors - 1; v++) line[v] = wide_load(b + v * LANES);
    line[vectors - 1] = wide_load_first(b + (vectors - 1) * LANES, last);
#pragma GCC unroll 8
    for (int r = first; r < end; r++) {
        const float a = t->row[r][k * t->a_inner];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) t->sum[r][v] = wide_fma(a, line[v], t->sum[r][v]);
    }
}

/* c = alpha sum + beta c */
static AB_FORCE_INLINE void store(const block *x, float *c, wide sum, int n) {
    sum = wide_scale(x->p->alpha, sum);
    if (x->beta != 0.0f) sum = wide_add(sum, wide_scale(x->beta, wide_load_first(c, n)));
    wide_store_first(c, sum, n);
}

/* Values of the inner dimension that the first i rows of a tile have, or the rows from i on. Written out, so
 * that compilers see that no sum needs memory. */
#define ABOVE(i)                                                                                             \
    if ((i) < rows && from - rows + (i) >= 0 && from - rows + (i) < inner)                                   \
        add_step(&t, from - rows + (i), 0, i, vectors, last);
#define BELOW(i)                                                                                             \
    if ((i) < rows && to + (i)-1 >= 0 && to + (i)-1 < inner) add_step(&t, to + (i)-1, i, rows, vectors, last);
#if defined(__AVX512F__)
#define EACH_ROW(what) what(1) what(2) what(3) what(4) what(5) what(6) what(7)
#else
#define EACH_ROW(what) what(1) what(2) what(3) what(4) what(5)
#endif

/* `rows` rows by `vectors` vectors of columns, of which the last has `last` columns. */
static AB_FORCE_INLINE void tile(const block *x, const int rows, const int vectors, const int last) {
    tile_sums t = {.b = x->b, .a_inner = x->p->a_inner, .b_step = x->b_step};
    const int64_t from = x->from, to = x->to, inner = x->inner;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        t.row[r] = x->a + r * x->p->a_row;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) t.sum[r][v] = wide_zero();
    }
    if (x->p->triangle == AB_TRIANGLE_A_ABOVE) {
        EACH_ROW(ABOVE)
    }
#pragma GCC unroll 4
    for (int64_t k = from > 0 ? from : 0; k < (to < inner ? to : inner); k++)
        add_step(&t, k, 0, rows, vectors, last);
    if (x->p->triangle == AB_TRIANGLE_A_BELOW) {
        EACH_ROW(BELOW)
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            store(x, x->c + r * x->p->c_row + v * LANES, t.sum[r][v], v < vectors - 1 ? LANES : last);
}

/* One function for each number of rows and of vectors, with the last one whole or not. */
#define TILE(rows, vectors)                                                                                  \
    static void whole_##rows##_##vectors(const block *x, int last) {                                         \
        (void)last;                                                                                          \
        tile(x, (rows) < ROWS ? (rows) : ROWS, (vectors) < VECTORS ? (vectors) : VECTORS, LANES);            \
    }                                                                                                        \
    static void part_##rows##_##vectors(const block *x, int last) {                                          \
        tile(x, (rows) < ROWS ? (rows) : ROWS, (vectors) < VECTORS ? (vectors) : VECTORS, last);             \
    }
#define TILES(rows) TILE(rows, 1) TILE(rows, 2)
#define NAMES(rows)                                                                                          \
    {                                                                                                        \
        {part_##rows##_1, part_##rows##_2}, { whole_##rows##_1, whole_##rows##_2 }                           \
    }
TILES(1)
TILES(2)
TILES(3)
TILES(4)
TILES(5)
TILES(6)
#if defined(__AVX512F__)
TILES(7)
TILES(8)
#endif

static void run_tile(const block *x, int64_t rows, int64_t columns) {
    static void (*const tiles[ROWS][2][2])(const block *, int) = {
        NAMES(1),
        NAMES(2),
        NAMES(3),
        NAMES(4),
        NAMES(5),
        NAMES(6),
#if defined(__AVX512F__)
        NAMES(7),
        NAMES(8)
#endif
    };
    const int vectors = (int)((columns + LANES - 1) / LANES), last = (int)columns - (vectors - 1) * LANES;
    tiles[rows - 1][last == LANES][vectors - 1](x, last);
}

/* Sets what all rows of a tile have of a block's inner dimension. row: its first; first: the block's of the
 * inner dimension; column: the block's first. Returns the number of columns, 0 if there is nothing to do. */
static int64_t within_triangle(block *x, int64_t row, int64_t rows, int64_t first, int64_t column,
                               int64_t columns) {
    const ab_vec_product *p = x->p;
    const int64_t diagonal = row + p->diagonal + 1, end = diagonal + rows - 1; /* of the last row */
    bool has = true;
    if (p->triangle == AB_TRIANGLE_C) {
        const int64_t wanted = (end - column + LANES - 1) / LANES * LANES; /* whole vectors */
        return wanted < columns ? wanted : columns;
    }
    if (p->triangle == AB_TRIANGLE_A_BELOW) {
        x->to = diagonal - first;
        has = end - first > 0;
    }
    if (p->triangle == AB_TRIANGLE_A_ABOVE) {
        x->from = row - p->diagonal - first + rows - 1;
        has = row - p->diagonal - first < x->inner;
    }
    return has || first == 0 ? columns : 0;
}

/* Rows of the next tile: the last two share what is left evenly. */
static int64_t tile_rows(int64_t left) {
    return left >= 2 * ROWS || left == ROWS ? ROWS : left > ROWS ? (left + 1) / 2 : left;
}

/* Changes x. */
static void run_block(block *x, int64_t first, int64_t column, int64_t columns) {
    int64_t rows = 0;
    for (int64_t row = 0; x->rows > 0; row += rows) {
        rows = tile_rows(x->rows);
        x->from = 0;
        x->to = x->inner;
        const int64_t wanted =
            x->p->triangle ? within_triangle(x, row, rows, first, column, columns) : columns;
        if (wanted > 0) run_tile(x, rows, wanted);
        x->rows -= rows;
        x->a += rows * x->p->a_row;
        x->c += rows * x->p->c_row;
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
            run_block(&x, first, column, columns);
        }
    }
}

extern const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX);
const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX) = {.multiply = multiply};
