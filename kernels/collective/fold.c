/* Additions of rows, with the kernel of the CPU level in force. */
#include "kernels/collective/fold.h"

#include "kernels/collective/vec_fold.h"
#include "kernels/vec/isa.h"

#include <string.h>

AB_BY_ISA(ab_vec_fold, ab_vec_fold)

void ab_fold_rows(const ab_format *wire, float *sum, const float *const *row, int64_t rows, int64_t n) {
    const ab_vec_fold *fold = ab_vec_fold_get();
    if (wire == &ab_format_fp16)
        fold->fp16(sum, row, rows, n);
    else if (wire == &ab_format_bf16)
        fold->bf16(sum, row, rows, n);
    else
        fold->fp32(sum, row, rows, n);
}

void ab_fold_cycle(const ab_format *wire, float *sum, const float *const *row, int64_t rows, int64_t start,
                   int64_t n) {
    memcpy(sum, row[start], (size_t)n * sizeof *sum);
    ab_fold_rows(wire, sum, row + start + 1, rows - start - 1, n);
    ab_fold_rows(wire, sum, row, start, n);
}
