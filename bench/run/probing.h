/* Probing a cell: which steps, by which probes, and the event that reports what they found. */
#ifndef AB_BENCH_RUN_PROBING_H
#define AB_BENCH_RUN_PROBING_H

#include "bench/run/config.h"
#include "bench/run/governor.h"
#include "probes/set.h"

AB_BEGIN_DECLS

typedef struct ab_probing {
    bool active; /* false: no step is probed, and there is no event */
    ab_governor governor;
    ab_probe_set *set;
    ab_probe_tensor *tensor;
    ab_probe_param *param;
    int64_t steps, spent_ns; /* of the run; spent in probes when the step under way began */
} ab_probing;

/* Creates the probes that the configuration asks for and tells the cell what to show. */
AB_MUST_CHECK ab_status ab_probing_start(ab_probing *probing, const ab_run_config *config, ab_cell *cell,
                                         const ab_format *half);
void ab_probing_clear(ab_probing *probing);

/* The observer of the next step, or NULL if it is not to be probed. */
ab_observer *ab_probing_next(ab_probing *probing);

/* How many of the next `most` steps are not to be probed whatever they cost; and that such a step has run in
 * time_ns. For callers that take several at once, in the place of ab_probing_next. */
int64_t ab_probing_unprobed(const ab_probing *probing, int64_t most);
void ab_probing_note(ab_probing *probing, int64_t time_ns);

/* The step that ab_probing_next was asked for has run, a second time if `replayed`. begun_ns: when it began
 * (ab_monotonic_ns). Returns its time, that of the probes included. */
int64_t ab_probing_step_end(ab_probing *probing, int64_t step, const ab_observer *observer, bool replayed,
                            int64_t begun_ns);

/* Writes {"event": "probes", ...} to stdout. */
void ab_probing_event(const ab_probing *probing);

AB_END_DECLS

#endif
