/* Sums and maxima over some dimensions of a tensor or of something computed from tensors, one fp32 value at a
 * time.
 *
 * Values are combined in double in an order that depends on the shape alone: pieces of a result's elements
 * are added up in order, then the pieces. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_REDUCTION_H
#define AB_KERNELS_OPS_REDUCTION_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* fp32 values [at, at + n) of what is reduced; may use `buffer`. n is at most AB_REDUCE_RUN. */
typedef const float *(*ab_reduce_source)(const void *self, int64_t at, int64_t n, float *buffer);

enum { AB_REDUCE_RUN = 512 };

typedef struct ab_reduction {
    int64_t kept, reduced; /* elements of the result, and of the input for each of them */
    int groups;            /* neighbouring dimensions with one fate, joined */
    bool gone[AB_MAX_DIMS];
    int64_t dim[AB_MAX_DIMS], stride[AB_MAX_DIMS];
    int64_t row, tile,
        tiles;      /* results that are neighbours in the input, how many are made together, tiles in all */
    int64_t pieces; /* of the elements of a result */
} ab_reduction;

/* Over the dimensions in `axes` (bit i). */
ab_reduction ab_reduction_of(const ab_shape *shape, unsigned axes);

/* Bytes of scratch, 64-byte aligned. */
size_t ab_reduction_bytes(const ab_reduction *r);

/* result[kept] = scale * sum, or the maximum (NaN if there is one), each rounded once from double. */
void ab_reduce_sum(const ab_reduction *r, ab_reduce_source source, const void *self, double scale,
                   void *scratch, float *result);
void ab_reduce_max(const ab_reduction *r, ab_reduce_source source, const void *self, void *scratch,
                   float *result);

AB_END_DECLS

#endif
