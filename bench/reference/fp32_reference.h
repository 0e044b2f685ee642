/* Reference gradients: every n-th step of a cell, its gradients are computed a second time without underflow
 * and compared element by element. The reference is either an fp32 copy of the cell in the same process, with
 * the batch, the weights and the random numbers of the step; or the cell itself at a loss scale 2^octaves
 * higher, which distinguishes flushed zeros from exact ones without an fp32 copy (de-censoring). The results
 * of the cell do not change. */
#ifndef AB_BENCH_REFERENCE_FP32_REFERENCE_H
#define AB_BENCH_REFERENCE_FP32_REFERENCE_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

typedef enum ab_reference_kind { AB_REFERENCE_FP32, AB_REFERENCE_DECENSOR } ab_reference_kind;

enum { AB_REFERENCE_OCTAVES = 10 };

typedef struct ab_fp32_reference ab_fp32_reference;

/* `config`: of the cell; it and what it points to are borrowed until ab_fp32_reference_destroy. AB_CONFIG if
 * losses have their own scales. */
AB_MUST_CHECK ab_status ab_fp32_reference_create(const ab_cell_config *config, ab_reference_kind kind,
                                                 int octaves, ab_fp32_reference **fp32);
void ab_fp32_reference_destroy(ab_fp32_reference *fp32); /* NULL is a no-op */

/* To be called before and after a step of the cell that is to be compared. */
AB_MUST_CHECK ab_status ab_fp32_reference_before(ab_fp32_reference *fp32, ab_cell *cell);
AB_MUST_CHECK ab_status ab_fp32_reference_after(ab_fp32_reference *fp32, ab_cell *cell,
                                                const ab_step_result *result);

/* Writes "reference", "octaves", "looks", "loss_error" and "tensors" into the open object. */
void ab_fp32_reference_report(const ab_fp32_reference *fp32, ab_probe_sink *sink);

AB_END_DECLS

#endif
