/* A unit for products of bf16 values, summed in fp32: AMX-BF16 tiles of 16 x 16 sums, or AVX512-BF16 vectors
 * of 16.
 *
 * Vectors: for every pair of the inner dimension, the value of odd index first, then that of even index, each
 * is multiplied and added to the sum in one rounding to nearest even (compared with fmaf on an AMD Zen 4, 20
 * million random sums, bit for bit). Tiles: by Intel's manual the products of 32 inner values are summed so
 * from zero, even index first, and then added to the sum. Both take subnormal operands and sums as zero, and
 * a sum does not depend on what is computed beside it.
 *
 * A thread begins before products and ends after them. Internal to kernels/ops. */
#ifndef AB_KERNELS_OPS_PRODUCT_BF16_UNIT_H
#define AB_KERNELS_OPS_PRODUCT_BF16_UNIT_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_BF16_SIDE = 16, /* columns of a tile of sums */
    AB_BF16_TILES = 4  /* tiles side by side */
};

/* c[r][0..16 * tiles) = sum over t < runs, k < inner of a[t * run_step + r * a_step + k] * b[t][k][...] for
 * r < rows. One run: a matrix product; more: a convolution at adjacent positions, or its weight gradient.
 * continues: the sums go on from those in c; else those of every row from `start`, or from zeros if it is
 * NULL. */
typedef struct ab_bf16_product {
    const uint16_t *a;
    const uint16_t *b; /* of each tile and run: [inner / 2][16 columns][2] */
    const float *start;
    float *c;
    int64_t a_step, c_step; /* values from one row of a, of c to the next */
    int64_t b_step, b_row;  /* from one tile of b to the next, and within it from one pair to the next */
    int64_t runs, run_step; /* from one run of a to the next */
    int64_t b_run;          /* from one run of b to the next */
    /* Multiples of the unit's. Several runs of AMX: rows of 4 times that, of 2 times for even `tiles`; b_row
     * of 2 x 16; not continued. */
    int64_t rows, inner;
    int tiles; /* 1 to AB_BF16_TILES */
    bool continues;
    /* Where the sums of a row are stored afterwards, which vectors fetch into the cache meanwhile; NULL:
     * nothing. Bytes from one row to the next, and of a row. */
    const char *stored;
    int64_t stored_step, stored_bytes;
} ab_bf16_product;

typedef struct ab_bf16_unit {
    const char *name;    /* "amx_bf16", "avx512_bf16" */
    int64_t rows, inner; /* rows, and values of the inner dimension, that it computes at a time */
    void (*begin)(void);
    void (*end)(void);
    void (*multiply)(const ab_bf16_product *product);
} ab_bf16_unit;

/* The unit to use: AMX where the CPU has it and the system lets this process use it; else AVX512-BF16 on
 * AMD's CPUs, where a product of pairs takes as long as one of fp32 vectors of half as many values (Zen 4:
 * 234 against 117 GFLOP/s a core). Intel's without AMX take longer for it than for widening, so there it is
 * used only if `any`. NULL: none, or the CPU level in force is not the highest (isa.h). */
const ab_bf16_unit *ab_bf16_unit_get(bool any);

/* The units, NULL where the CPU or the system lacks one. */
const ab_bf16_unit *ab_bf16_unit_amx(void);
const ab_bf16_unit *ab_bf16_unit_avx512(void);

/* ---- values in pairs (bf16_pairs.c); only where there is a unit ------------------------------- */

/* to[k / 2][c][k % 2] = from[k * step + c] for k < rows, c < columns <= AB_BF16_SIDE; zeros up to 16 columns
 * and `inner` rows, an even number. */
void ab_bf16_pack_pairs(uint16_t *to, const uint16_t *from, int64_t step, int64_t rows, int64_t columns,
                        int64_t inner);

/* to[i] = the pair from[i], from[i + apart], for i < n, a multiple of 16. */
void ab_bf16_pair_up(uint16_t *to, const uint16_t *from, int64_t apart, int64_t n);

/* to[c * to_step + r] = from[r * from_step + c] for r < 16, c < 16: zeros from row `rows` and column
 * `columns` on. */
void ab_bf16_turn(uint16_t *to, int64_t to_step, const uint16_t *from, int64_t from_step, int64_t rows,
                  int64_t columns);

AB_END_DECLS

#endif
