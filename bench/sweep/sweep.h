/* Runs the cells of a run on several machines (--launch). Cells are independent: each machine runs parts of
 * them with `ampbench part` and says what it recorded, line by line; this process adds the lines to one
 * document. It schedules nothing that a batch system schedules: it starts commands by ssh, sends tasks to the
 * processes of an MPI job, or submits one job array to Slurm. */
#ifndef AB_BENCH_SWEEP_SWEEP_H
#define AB_BENCH_SWEEP_SWEEP_H

#include "bench/run/run.h"

AB_BEGIN_DECLS

/* For ab_run. */
extern const ab_run_driver ab_sweep_driver;

AB_END_DECLS

#endif
