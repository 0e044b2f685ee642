/* Training in fp64, to find out whether fp32 itself is the cause: follows an fp32 cell and computes its own
 * forward values, gradients, optimizer states and weights in fp64 with the reference implementations of the
 * ops (probes/element64/element64.h), element by element on the CPU. The fp32 cell (the guide) supplies the
 * order of ops and the batches; after the first step no other values of it are read.
 *
 * Slow: for a few steps of small networks; ab_double_refusal says which configurations are supported. Does
 * not clip, accumulate or save. */
#ifndef AB_BENCH_EXPERIMENTS_DOUBLE_CELL_H
#define AB_BENCH_EXPERIMENTS_DOUBLE_CELL_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

typedef struct ab_double ab_double;

/* Returns why a cell of this configuration cannot be trained in fp64, in a few words; NULL if it can. */
const char *ab_double_refusal(const ab_cell_config *config, const ab_plan *plan);

/* Starts from the guide's weights and optimizer states. The guide is a borrowed fp32 (O0) cell on the CPU;
 * its watch and follower are replaced. */
AB_MUST_CHECK ab_status ab_double_create(ab_cell *guide, const ab_cell_config *config, ab_double **made);
void ab_double_destroy(ab_double *made); /* NULL is a no-op */

/* Runs one step of both; *loss is the fp64 loss. */
AB_MUST_CHECK ab_status ab_double_step(ab_double *made, double *loss);

AB_END_DECLS

#endif
