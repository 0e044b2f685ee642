/* Options that would have no effect. */
#ifndef AB_BENCH_RUN_NEEDS_H
#define AB_BENCH_RUN_NEEDS_H

#include "bench/run/config/options.h"

AB_BEGIN_DECLS

/* What a run has, of what options need to act (the second column of needs.def). */
typedef struct ab_run_has {
    bool init, schedule, weight_decay, clip_norm, ema, ranks;
    bool probes; /* that are asked for: a step is probed, or only the default ones are named */
    bool trace;  /* a step is probed */
    bool shadow, floors;
    bool accumulates; /* ranks do, several batches a step */
} ab_run_has;

/* AB_USAGE if an option is given that cannot act in this run (needs.def): the message names it and what is
 * missing. */
AB_MUST_CHECK ab_status ab_needs_check(const ab_options *options, const ab_run_has *has);

AB_END_DECLS

#endif
