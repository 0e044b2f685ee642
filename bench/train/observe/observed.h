/* Description of a tensor that observers are shown. */
#ifndef AB_BENCH_TRAIN_OBSERVE_OBSERVED_H
#define AB_BENCH_TRAIN_OBSERVE_OBSERVED_H

#include "bench/amp/plan/plan.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

typedef struct ab_observed {
    char name[AB_PLAN_NAME]; /* the same at every level */
    const char *layer;       /* borrowed from the net */
    ab_probe_role role;
    bool cast; /* stored in the half format, or cast to it for the ops */
} ab_observed;

AB_END_DECLS

#endif
