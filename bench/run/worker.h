/* A worker: the process that runs one cell once and reports to its parent, one JSON object per line on
 * stdout.
 *
 * Lines: {"event": "start", ...}: what was compiled and allocated; {"event": "step", ...} one per step;
 * {"event": "evaluation", ...}, {"event": "probes", ...}, {"event": "reduction", ...},
 * {"event": "replicas", ...}, {"event": "saved_gradients", ...}, {"event": "communication", ...},
 * {"event": "rank_samples", ...}, {"event":
 * "end", ...}, of a few steps for what probing costs
 * {"event": "probe_cost", "step_ns", "probe_ns"} instead of those; or {"event": "error",
 * "message", "status"} (text of the status) as the last line. */
#ifndef AB_BENCH_RUN_WORKER_H
#define AB_BENCH_RUN_WORKER_H

#include "kernels/core/status.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* A worker's arguments, which precede the configuration options of the run. */
typedef struct ab_worker_task {
    const char *cell;   /* id of the cell */
    int64_t place;      /* ab_run_cell_at */
    int64_t kind;       /* ab_worker_kind */
    int64_t spawned_ns; /* CLOCK_MONOTONIC when the parent started it */
    int64_t data_fd;    /* a shared data set (shared_data.h), or -1 to load it */
    int64_t every;      /* which steps are probed: multiples of this */
    int64_t steps;      /* of a timed process: how many of the first steps it trains; 0: all */
    int64_t threads;    /* beside other processes: its share of the run's; 0: all */
} ab_worker_task;

typedef enum ab_worker_kind {
    AB_WORKER_TIMED,  /* only steps and their times */
    AB_WORKER_FULL,   /* with probes and evaluation */
    AB_WORKER_PROBING /* a few steps, for what probing costs */
} ab_worker_kind;

/* "ampbench", "worker", cell, place, kind, spawned_ns, data_fd, every, steps, threads; then options */
enum { AB_WORKER_ARGS = 10 };

/* Texts of the numbers of a task. */
typedef struct ab_worker_words {
    char text[AB_WORKER_ARGS - 3][24];
} ab_worker_words;

/* The first AB_WORKER_ARGS words of a worker's command line for `task`; they point into `words` and at
 * task->cell. */
void ab_worker_write(const ab_worker_task *task, ab_worker_words *words, char **argv);

/* The hidden subcommand `ampbench worker`. */
ab_status ab_worker_main(int argc, char **argv);

AB_END_DECLS

#endif
