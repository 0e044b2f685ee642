/* What is said on stderr of the steps of a cell while it trains: a line every N steps (--log-every) in the
 * form of MindSpore's LossMonitor, and apex's lines where the cell's verbosity asks for them. The line of
 * progress is progress.h's. */
#ifndef AB_BENCH_RUN_MONITOR_H
#define AB_BENCH_RUN_MONITOR_H

#include "bench/run/config/cells.h"
#include "bench/run/process.h"
#include "bench/run/progress.h"

AB_BEGIN_DECLS

typedef struct ab_monitor {
    const ab_run_config *config;
    const ab_cell_spec *cell;
    ab_progress *progress;
    ab_progress_run run; /* in *progress */
    bool logs, apex;
    int64_t seen; /* steps of the process that were said */
    int64_t skipped;
} ab_monitor;

/* Starts a process of `cell` that trains `steps` steps. Only the first round of a cell logs: the others
 * repeat its bits. All arguments are borrowed. */
AB_MUST_CHECK ab_status ab_monitor_start(ab_monitor *monitor, const ab_run_config *config,
                                         const ab_cell_spec *cell, bool first_round, int64_t steps,
                                         ab_progress *progress);

/* Whether lines are said of the steps of this cell's first round: then it runs beside no other. */
bool ab_monitor_has_lines(const ab_run_config *config, const ab_cell_spec *cell);

/* Says what is new in the process, and moves the line of progress. */
void ab_monitor_see(ab_monitor *monitor, const ab_process *process);

/* The line of step `step` (from 0) of the run: "epoch: 1 step: 100, loss is 0.7, scale 65536, 2 skipped".
 * `each`: steps an epoch. Writes text[160]; returns it. */
const char *ab_monitor_line(int64_t step, int64_t each, const ab_step_event *event, int64_t skipped,
                            char *text);

AB_END_DECLS

#endif
