/* Progress of a run on stderr: on a terminal, one line that is rewritten; else a plain line every ten
 * seconds. */
#ifndef AB_BENCH_RUN_PROGRESS_H
#define AB_BENCH_RUN_PROGRESS_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_progress {
    bool quiet, terminal;
    int64_t started_ns, shown_ns; /* shown_ns: on a terminal */
    int processes, started, done; /* of the run */
    double parts;                 /* of the processes that run: the sum of the shares of their steps */
    int shown;                    /* on a terminal: the number of the one that is shown; 0: none */
    int64_t batch;
    const char *build; /* what makes speeds those of the build; "" */
} ab_progress;

/* A process that runs. */
typedef struct ab_progress_run {
    int number; /* from 1 */
    const char *cell;
    int64_t steps;
    int64_t started_ns, shown_ns;
    double part; /* of its steps */
} ab_progress_run;

/* The last step of a process, and the skipped ones so far. */
typedef struct ab_progress_now {
    double loss, scale;
    int64_t skipped;
} ab_progress_now;

/* Call start; then for every process its cell and how many steps it makes, then its steps as they arrive; end
 * clears the line. Of processes that run at the same time a terminal shows the first one. `build` is shown
 * beside speeds; "" for none. */
void ab_progress_start(ab_progress *progress, bool quiet, int processes, int64_t batch, const char *build);
void ab_progress_process(ab_progress *progress, ab_progress_run *run, const char *cell, int64_t steps);
void ab_progress_step(ab_progress *progress, ab_progress_run *run, int64_t step, ab_progress_now now);
/* Before another line is written to stderr. */
void ab_progress_clear_line(ab_progress *progress);
/* reason: "" if it went well */
void ab_progress_process_done(ab_progress *progress, ab_progress_run *run, const char *reason);
void ab_progress_end(ab_progress *progress);

AB_END_DECLS

#endif
