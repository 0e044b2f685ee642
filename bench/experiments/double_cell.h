/* Training in double, to see whether fp32 itself is to blame: a shadow of an fp32 cell that makes every
 * forward value, gradient, optimizer state and weight of its own in double, by the second opinions of the ops
 * (probes/element64/element64.h), element by element on the CPU. The cell, its guide, says which op comes
 * next and brings batches; after the first step none of its numbers is read but those.
 *
 * Slow, for a few steps of small networks: what it takes is said by ab_double_refusal. Does not clip,
 * accumulate or save. */
#ifndef AB_BENCH_EXPERIMENTS_DOUBLE_CELL_H
#define AB_BENCH_EXPERIMENTS_DOUBLE_CELL_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

typedef struct ab_double ab_double;

/* Why a cell of this configuration has no double, in a few words; NULL: it has one. */
const char *ab_double_refusal(const ab_cell_config *config, const ab_plan *plan);

/* Begins with the guide's weights and optimizer states. The guide is an fp32 (O0) cell on the CPU, borrowed;
 * its watch and follower are taken. */
AB_MUST_CHECK ab_status ab_double_create(ab_cell *guide, const ab_cell_config *config, ab_double **made);
void ab_double_destroy(ab_double *made); /* NULL is a no-op */

/* One step of both; the loss of the double. */
AB_MUST_CHECK ab_status ab_double_step(ab_double *made, double *loss);

AB_END_DECLS

#endif
