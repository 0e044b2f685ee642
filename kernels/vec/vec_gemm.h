/* A matrix product of operands that lie in cache, on the calling thread, compiled once per CPU level
 * (vec_gemm.c). Every sum is one chain of multiply-adds in the order of the inner dimension, or one per block
 * of it, fused where the CPU level has FMA: its bits depend neither on the vector width nor on the number of
 * rows and columns. Every product that no triangle leaves out is added, so infinities and NaNs go where IEEE
 * arithmetic puts them.
 *
 * Internal to kernels/; gemm_run.c is the only caller, gemm.h passes triangles on. */
#ifndef AB_KERNELS_VEC_VEC_GEMM_H
#define AB_KERNELS_VEC_VEC_GEMM_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* What is known to be zero, or not wanted, of a product with a triangle: */
typedef enum ab_triangle {
    AB_TRIANGLE_NONE,
    AB_TRIANGLE_C, /* c[i][j] is wanted only where j <= i + diagonal, and may be left as it is elsewhere */
    AB_TRIANGLE_A_BELOW, /* a[i][k] is 0 where k > i + diagonal; its products may be left out */
    AB_TRIANGLE_A_ABOVE  /* a[i][k] is 0 where i > k + diagonal; the same */
} ab_triangle;

/* c [rows, columns] = alpha a [rows, inner] b [inner, columns] + beta c; c is not read if beta is 0. Element
 * (i, k) of a is a[i * a_row + k * a_inner], (k, j) of b is b[k * b_inner + j * b_column], (i, j) of c is
 * c[i * c_row + j]. Steps are at least 1; c shares no memory with a and b. */
typedef struct ab_vec_product {
    const float *a, *b;
    float *c;
    int64_t a_row, a_inner, b_inner, b_column, c_row;
    int64_t rows, columns, inner;
    float alpha, beta;
    ab_triangle triangle;
    int64_t diagonal; /* at least 0 */
} ab_vec_product;

typedef struct ab_vec_gemm {
    void (*multiply)(const ab_vec_product *product);
} ab_vec_gemm;

AB_END_DECLS

#endif
