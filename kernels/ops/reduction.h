/* Sums and maxima over some dimensions of a tensor, or of values computed from tensors, in fp32.
 *
 * Values are combined in double in an order that depends on the shape alone: each result's elements are split
 * into pieces, each piece is summed in order, then the pieces. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_REDUCTION_H
#define AB_KERNELS_OPS_REDUCTION_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Returns fp32 values [at, at + n) of the input; may use `buffer`. n is at most AB_REDUCE_RUN. */
typedef const float *(*ab_reduce_source)(const void *self, int64_t at, int64_t n, float *buffer);

enum { AB_REDUCE_RUN = 512 };

typedef struct ab_reduction {
    int64_t kept, reduced; /* elements of the result; input elements per result */
    int groups;            /* adjacent dimensions, all reduced or all kept, merged */
    bool is_reduced[AB_MAX_DIMS];
    int64_t dim[AB_MAX_DIMS], stride[AB_MAX_DIMS];
    int64_t row, tile, tiles; /* results adjacent in the input; results per tile; number of tiles */
    int64_t pieces;           /* per result */
} ab_reduction;

/* Reduction over the dimensions in `axes` (bit i). */
ab_reduction ab_reduction_of(const ab_shape *shape, unsigned axes);

/* Bytes of scratch; the scratch must be 64-byte aligned. */
size_t ab_reduction_bytes(const ab_reduction *r);

/* result[kept] = scale * sum, or the maximum (NaN if any element is NaN), each rounded once from double. */
void ab_reduce_sum(const ab_reduction *r, ab_reduce_source source, const void *self, double scale,
                   void *scratch, float *result);
void ab_reduce_max(const ab_reduction *r, ab_reduce_source source, const void *self, void *scratch,
                   float *result);

AB_END_DECLS

#endif
