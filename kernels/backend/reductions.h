/* What a device computes of its tensors for probes, so that only counts and indices are copied to the host.
 * Results are those of the host's functions for the same values (extremes.h, row_sums.h, update_counts.h):
 * counts exactly, sums bit for bit. Every function waits for the device. AB_UNAVAILABLE: not for these
 * formats; the caller downloads. */
#ifndef AB_KERNELS_BACKEND_REDUCTIONS_H
#define AB_KERNELS_BACKEND_REDUCTIONS_H

#include "kernels/backend/update_counts.h"
#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

/* Of a tensor (extremes.h). */
typedef struct ab_tensor_extremes {
    double largest; /* finite magnitude; 0 if there is none */
    int64_t infinite, nan;
} ab_tensor_extremes;

/* Of evenly spaced rows of a tensor (row_sums.h). */
enum { AB_ROW_UNITS = 4096, AB_ROW_LANES = 32 };

/* Sums of squares: value j of a row in lane j % AB_ROW_LANES, a row's lanes in order; row i in lane
 * i % AB_ROW_LANES, these lanes in order. */
typedef struct ab_row_sums {
    int64_t finite, zero; /* values */
    int64_t silent;       /* units that are 0 in every row */
    double squares;       /* sum over finite values */
    double largest;       /* finite magnitude; 0 if there is none */
} ab_row_sums;

struct ab_update_item;
struct ab_update_row;

typedef struct ab_reductions {
    /* Extremes of `count` tensors; the first non-finite places of one (*found <= most); sums over its rows.
     */
    ab_status (*extremes)(const ab_tensor *const *tensor, int count, ab_tensor_extremes *extremes);
    ab_status (*places)(const ab_tensor *tensor, int64_t *place, int most, int *found);
    ab_status (*row_sums)(const ab_tensor *tensor, int64_t rows, ab_row_sums *sums);

    /* Values at n places of a tensor, widened to fp32. */
    ab_status (*elements)(const ab_tensor *tensor, const int64_t *place, int64_t n, float *values);

    /* One optimizer step of one parameter, as ab_backend.update, with what is counted of it. counts->run has
     * room for ab_update_runs(count); `lr` is left alone. */
    ab_status (*update)(const struct ab_update_item *item, int kind, const struct ab_update_row *row,
                        const ab_update_question *question, ab_update_counts *counts);

    /* Clips gradients in place by the norm of all of them, then by value (0: off), with the bits of steps
     * that the device decides (ab_resident_config). *total: the norm before; 0 without a limit of it. */
    ab_status (*clip)(ab_tensor *const *grad, int count, double norm, double value, double *total);
} ab_reductions;

AB_END_DECLS

#endif
