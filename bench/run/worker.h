/* A worker: the process that runs one cell once and reports to its parent, one JSON object per line on
 * stdout.
 *
 * Lines: {"event": "start", ...}: what was compiled and allocated; {"event": "step", ...} one per step;
 * {"event": "evaluation", ...}, {"event": "probes", ...}, {"event": "end", ...}; or {"event": "error",
 * "message", "status"} (text of the status) as the last line. */
#ifndef AB_BENCH_RUN_WORKER_H
#define AB_BENCH_RUN_WORKER_H

#include "kernels/core/status.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* A worker's arguments, which precede the configuration options of the run. */
typedef struct ab_worker_task {
    const char *cell;   /* id of the cell */
    int64_t full;       /* 1: with probes and evaluation; 0: only steps and their times */
    int64_t spawned_ns; /* CLOCK_MONOTONIC when the parent started it */
    int64_t data_fd;    /* a shared data set (shared_data.h), or -1 to load it */
} ab_worker_task;

enum { AB_WORKER_ARGS = 6 }; /* "ampbench", "worker", cell, full, spawned_ns, data_fd; then options */

/* The hidden subcommand `ampbench worker`. */
ab_status ab_worker_main(int argc, char **argv);

AB_END_DECLS

#endif
