/* One order of additions for the schemes: rows added one after the other, rounded to the wire format. */
#ifndef AB_KERNELS_COLLECTIVE_FOLD_H
#define AB_KERNELS_COLLECTIVE_FOLD_H

#include "kernels/core/compiler.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* sum[i] += row[r][i] for r in [0, rows), in order, each sum rounded to `wire`: fp32, fp16 or bf16. */
void ab_fold_rows(const ab_format *wire, float *sum, const float *const *row, int64_t rows, int64_t n);

/* The same for all rows of a cycle that begins at row `start`: sum = row[start], then start + 1, ..., the
 * last, 0, ..., start - 1. */
void ab_fold_cycle(const ab_format *wire, float *sum, const float *const *row, int64_t rows, int64_t start,
                   int64_t n);

AB_END_DECLS

#endif
