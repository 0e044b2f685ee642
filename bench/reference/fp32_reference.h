/* Shadow gradients: every n-th step of a cell, its gradients are made a second time, where nothing is lost, and compared element by
 * element. The second opinion is either an fp32 twin of the cell in the same process, with the batch, the weights and the random
 * numbers of the step; or the cell itself at a loss scale 2^octaves higher, which tells flushed zeros from natural ones
 * without a twin (de-censoring). The cell's own numbers do not change. */
#ifndef AB_BENCH_REFERENCE_FP32_REFERENCE_H
#define AB_BENCH_REFERENCE_FP32_REFERENCE_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

typedef enum ab_twin_kind { AB_TWIN_FP32, AB_TWIN_DECENSOR } ab_twin_kind;

enum { AB_TWIN_OCTAVES = 10 };

typedef struct ab_twin ab_twin;

/* `config`: of the cell; borrowed for the twin's life, as what it points to. AB_CONFIG where losses have their own scales. */
AB_MUST_CHECK ab_status ab_twin_create(const ab_cell_config *config, ab_twin_kind kind, int octaves,
                                       ab_twin **twin);
void ab_twin_destroy(ab_twin *twin); /* NULL is a no-op */

/* Before and after a step of the cell that is to be looked at. */
AB_MUST_CHECK ab_status ab_twin_before(ab_twin *twin, ab_cell *cell);
AB_MUST_CHECK ab_status ab_twin_after(ab_twin *twin, ab_cell *cell, const ab_step_result *result);

int64_t ab_twin_looks(const ab_twin *twin);

/* Writes "reference", "octaves", "looks", "loss_error" and "tensors" into the object that is open. */
void ab_twin_report(const ab_twin *twin, ab_probe_sink *sink);

AB_END_DECLS

#endif
