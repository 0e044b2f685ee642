/* The loops of vec_gemm.h: strips of columns, in each of them blocks of the inner dimension, in each of them
 * tiles of rows whose sums stay in registers. */
#include "kernels/vec/vec_gemm.h"

#include "kernels/vec/vec_wide.h"

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

static void run_block(block x, int64_t columns) {
    static void (*const tiles[2][4])(const block *, int) = {{part_1, part_2, part_3, part_4},
                                                            {whole_1, whole_2, whole_3, whole_4}};
    const int vectors = (int)((columns + LANES - 1) / LANES), last = (int)columns - (vectors - 1) * LANES;
    for (; x.rows > 0; x.rows -= ROWS) {
        tiles[last == LANES][vectors - 1](&x, last);
        x.a += ROWS * x.p->a_row;
        x.c += ROWS * x.p->c_row;
    }
}

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
    for (int64_t column = 0; column < p->columns; column += STRIP) {
        const int64_t columns = p->columns - column < STRIP ? p->columns - column : STRIP;
        for (int64_t first = 0; first == 0 || first < p->inner; first += INNER) {
            block x = {.p = p,
                       .a = p->a + first * p->a_inner,
                       .c = p->c + column,
                       .rows = p->rows,
                       .inner = p->inner - first < INNER ? p->inner - first : INNER,
                       .beta = first > 0 ? 1.0f : p->beta};
            take_b(&x, first, column, columns, packed);
            run_block(x, columns);
        }
    }
}

extern const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX);
const ab_vec_gemm PASTE(ab_vec_gemm_, AB_ISA_SUFFIX) = {.multiply = multiply};
