/* Probing a cell: which steps, which probes, and the event with their reports. */
#ifndef AB_BENCH_RUN_PROBING_H
#define AB_BENCH_RUN_PROBING_H

#include "bench/run/config/config.h"
#include "bench/run/governor.h"
#include "probes/set.h"

AB_BEGIN_DECLS

typedef struct ab_probing {
    bool active;   /* false: no step is probed, and there is no event */
    double budget; /* 0: the steps were given */
    ab_governor governor;
    ab_probe_set *set;
    ab_probe_tensor *tensor;
    ab_probe_param *param;
    int64_t (*clock)(void);            /* what the budget counts: processor time, or on a GPU time */
    int lanes;                         /* threads whose times add up to that of the clock */
    int64_t steps, spent_ns, begun_ns; /* of the run; probes' time and clock when the current step began */
} ab_probing;

/* Creates the probes of the configuration and enables what they observe in the cell. */
AB_MUST_CHECK ab_status ab_probing_start(ab_probing *probing, const ab_run_config *config, ab_cell *cell,
                                         const ab_format *half);
void ab_probing_clear(ab_probing *probing);

/* The observer for the next step, or NULL if it is not probed. */
ab_observer *ab_probing_next(ab_probing *probing);

/* For callers that run several steps at once instead of calling ab_probing_next: how many of the next `most`
 * steps are not probed whatever their cost; and the time of such a step after it has run. */
int64_t ab_probing_count_unprobed(const ab_probing *probing, int64_t most);
void ab_probing_note(ab_probing *probing, int64_t time_ns);

/* To be called after the step of ab_probing_next; `replayed`: it was run a second time. begun_ns: its start
 * (ab_monotonic_ns). Returns its time in ns, probes included. */
int64_t ab_probing_step_end(ab_probing *probing, int64_t step, const ab_observer *observer, bool replayed,
                            int64_t begun_ns);

/* Trains the cell for a few steps, half of them probed, and returns what these took. The cell is of no
 * further use. */
AB_MUST_CHECK ab_status ab_probing_measure(ab_probing *probing, ab_cell *cell, ab_probe_cost *cost);

/* Writes {"event": "probes", ...} to stdout. */
void ab_probing_event(const ab_probing *probing);

AB_END_DECLS

#endif
