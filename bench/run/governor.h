/* How often to probe: either every n-th step, or as often as a budget allows. A budget is the most that
 * probing may add to the time of a run. The governor measures what probed steps cost beyond the others and
 * lets the next one happen only when all of them together stay within four fifths of the budget; the rest is
 * for what it cannot see, caches left cold.
 *
 * A run may be short, or its machine busy, and reports need gradients from all of it. So there is a floor:
 * the first step, and at least AB_GOVERNOR_FLOOR steps at equal distances (every `every`-th where the run has
 * fewer of those). The floor is kept as long as it takes no more than AB_GOVERNOR_FREE_NS or four times the
 * budget, judged by the probed step that cost least of the last few, so that other processes do not matter.
 * Where it would take more, its distance is doubled until it does not. Pure arithmetic on times it is told.
 */
#ifndef AB_BENCH_RUN_GOVERNOR_H
#define AB_BENCH_RUN_GOVERNOR_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_GOVERNOR_RECENT = 9, AB_GOVERNOR_FLOOR = 16, AB_GOVERNOR_FREE_NS = 100000000 };

/* The last few times, for a median that one interrupted step does not move. */
typedef struct ab_recent {
    int64_t value[AB_GOVERNOR_RECENT];
    int count, next;
} ab_recent;

typedef struct ab_governor {
    double budget; /* share of the run; 0: no governor */
    int64_t every; /* steps that are multiples of this may be probed */
    int64_t apart; /* steps of the floor are multiples of this: `every` times a power of two */
    int64_t total; /* steps of the run */
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

/* What probing has added so far, in ns, and as a share of the run without it (NAN while no step went
 * unprobed). */
int64_t ab_governor_cost_ns(const ab_governor *governor);
double ab_governor_cost_share(const ab_governor *governor);

AB_END_DECLS

#endif
