/* How often to probe: either every n-th step, or as often as a budget allows. A budget is the most that probing may add to the
 * time of a run. The governor measures what probed steps cost beyond the others and lets the next one happen only when all
 * of them together stay within four fifths of the budget; the rest is for what it cannot see, caches left cold.
 *
 * A run may be short or its machine busy: the first step is always probed, and so are AB_GOVERNOR_LEAST steps at equal distances as long
 * as all probing together takes no more than AB_GOVERNOR_FREE_NS, whatever share of the run that is.
 * Pure arithmetic on times it is told. */
#ifndef AB_BENCH_RUN_GOVERNOR_H
#define AB_BENCH_RUN_GOVERNOR_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_GOVERNOR_RECENT = 9, AB_GOVERNOR_LEAST = 8, AB_GOVERNOR_FREE_NS = 100000000 };

/* The last few times, for a median that one interrupted step does not move. */
typedef struct ab_recent {
    int64_t value[AB_GOVERNOR_RECENT];
    int count, next;
} ab_recent;

typedef struct ab_governor {
    double budget; /* share of the run; 0: no governor */
    int64_t every; /* steps that are multiples of this may be probed */
    int64_t least; /* those that are multiples of this are, while it is free: a multiple of `every` */
    int64_t probed, steps;
    ab_recent usual, cost; /* ns of unprobed steps; ns that probing added to a step */
} ab_governor;

/* budget 0: every `every`-th step is probed, whatever it costs. every is at least 1. steps: of the run. */
void ab_governor_start(ab_governor *governor, double budget, int64_t every, int64_t steps);

/* Whether the next step is to be probed. Steps are counted by ab_governor_note. */
bool ab_governor_due(const ab_governor *governor);

/* Tells of a step: how long it took in all and, if probed, how long probes are known to have run. */
void ab_governor_note(ab_governor *governor, bool probed, int64_t time_ns, int64_t probes_ns);

/* Tells of a step whose time says nothing: it ran twice. */
void ab_governor_skip(ab_governor *governor);

/* What probing has added so far, in ns, and as a share of the run without it (NAN while no step went unprobed). */
int64_t ab_governor_cost_ns(const ab_governor *governor);
double ab_governor_cost_share(const ab_governor *governor);

AB_END_DECLS

#endif
