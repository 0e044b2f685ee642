/* The tile unit of CPUs with AMX-BF16: products of bf16 values, summed in fp32 tiles of 16 x 16.
 *
 * The unit treats subnormal operands, products and sums as zero. A thread loads its configuration before
 * tiles and releases it after them. Internal to kernels/ops/product. */
#ifndef AB_KERNELS_OPS_PRODUCT_AMX_H
#define AB_KERNELS_OPS_PRODUCT_AMX_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_AMX_SIDE = 16,  /* rows and columns of a tile of sums */
    AB_AMX_INNER = 32, /* values of the inner dimension of a tile of operands */
    AB_AMX_TILES = 4   /* tiles of sums side by side */
};

/* c[r][0..16 * tiles) = sum over k < inner of a[r][k] * b[k][...] for 16 rows. inner: a multiple of
 * AB_AMX_INNER. tiles: at most AB_AMX_TILES. continues: the sums go on from those in c; else those of every
 * row from `start`, or from zeros if it is NULL. */
typedef struct ab_amx_product {
    const uint16_t *a; /* rows of bf16 */
    const uint16_t *b; /* of each tile of sums: [inner / 2][16 columns][2] */
    const float *start;
    float *c;
    int64_t a_step, c_step; /* values from one row of a, of c to the next */
    int64_t b_step,
        b_row; /* values from one tile of b to the next, and within it from one pair to the next */
    int64_t inner;
    int tiles;
    bool continues;
} ab_amx_product;

/* For four tiles i: c[i][r * c_step + (0..16)] = bias[i][...] + sum over t < runs, k < run of
 * a[i][t * run_step + r * a_step + k] * b[i][t * run + k][...] for 16 rows: a convolution at 16 adjacent
 * positions. */
typedef struct ab_amx_slide {
    const uint16_t *a[AB_AMX_TILES];
    const uint16_t *b[AB_AMX_TILES]; /* [runs][run / 2][16][2] */
    float *c[AB_AMX_TILES];
    const float *bias[AB_AMX_TILES]; /* 16 values */
    int64_t a_step, c_step, runs, run, run_step;
} ab_amx_slide;

/* Whether the CPU has the unit, the system lets this process use it and the CPU level in force is the highest
 * (isa.h). */
bool ab_amx_is_usable(void);

/* Loads and releases the calling thread's configuration of tiles, which products need. */
void ab_amx_begin(void);
void ab_amx_end(void);

/* Computes the sums of a product. */
void ab_amx_multiply(const ab_amx_product *product);

/* Computes those of a slide whose four tiles have one b; of one in which tiles 0 and 1, 2 and 3 have one a
 * and tiles 0 and 2, 1 and 3 one b. */
void ab_amx_convolve(const ab_amx_slide *slide);
void ab_amx_convolve_pairs(const ab_amx_slide *slide);

/* to[k / 2][c][k % 2] = from[k * step + c] for k < rows, c < columns <= AB_AMX_SIDE; zeros up to 16 columns
 * and `inner` rows, an even number. */
void ab_amx_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows, int64_t columns,
                       int64_t inner);

/* to[i] = the pair from[i], from[i + apart], for i < n, a multiple of 16. */
void ab_amx_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n);

/* to[c * to_step + r] = from[r * from_step + c] for r < 16, c < 16: zeros from row `rows` and column
 * `columns` on. */
void ab_amx_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step, int64_t rows,
                 int64_t columns);

AB_END_DECLS

#endif
