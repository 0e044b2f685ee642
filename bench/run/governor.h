/* How often to probe: every n-th step, or as often as a budget allows. The budget is the largest share that
 * probing may add to the run time. The governor measures the extra time of probed steps and allows the next
 * one only if their sum stays within four fifths of the budget; the rest is a reserve for what it cannot
 * measure (cold caches).
 *
 * Reports need gradients from the whole run, also if it is short or the machine is busy. So there is a floor:
 * the first step, and at least AB_GOVERNOR_FLOOR steps at equal distances (every `every`-th where the run has
 * fewer of those). The floor is kept as long as it takes no more than AB_GOVERNOR_FREE_NS or four times the
 * budget, judged by the cheapest of the last few probed steps, to exclude the effect of other processes. If
 * it would take more, the distance is doubled until it does not. Pure arithmetic on the times passed in. */
#ifndef AB_BENCH_RUN_GOVERNOR_H
#define AB_BENCH_RUN_GOVERNOR_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_GOVERNOR_RECENT = 9, AB_GOVERNOR_FLOOR = 16, AB_GOVERNOR_FREE_NS = 100000000 };

/* The last few times, for a median that one interrupted step does not change. */
typedef struct ab_recent {
    int64_t value[AB_GOVERNOR_RECENT];
    int count, next;
} ab_recent;

typedef struct ab_governor {
    double budget; /* share of the run; 0: no governor */
    int64_t every; /* steps that are multiples of this may be probed */
    int64_t apart; /* floor steps are multiples of this: `every` times a power of two */
    int64_t total; /* steps of the run */
    int64_t probed, steps;
    ab_recent usual, cost; /* ns of unprobed steps; ns that probing added to a step */
} ab_governor;

/* budget 0: every `every`-th step is probed, whatever it costs. every is at least 1. steps: of the run. */
void ab_governor_start(ab_governor *governor, double budget, int64_t every, int64_t steps);

/* Returns whether to probe the next step. Steps are counted by ab_governor_note. */
bool ab_governor_due(const ab_governor *governor);

/* Records a step: its total time and, if probed, the measured time of the probes. */
void ab_governor_note(ab_governor *governor, bool probed, int64_t time_ns, int64_t probes_ns);

/* Counts a step whose time is not usable because it was replayed. */
void ab_governor_skip(ab_governor *governor);

/* The cost of probing so far, in ns and as a share of the run without it (NAN until there is an unprobed
 * step). */
int64_t ab_governor_cost_ns(const ab_governor *governor);
double ab_governor_cost_share(const ab_governor *governor);

/* How many threads a step uses. On a shared machine a second thread can cost more than it saves: if it is
 * preempted in the middle of a chunk, the caller waits for a whole time slice. The governor measures step
 * times and falls back to one thread where that is faster. It affects speed only: no result depends on the
 * number of threads. */

typedef struct ab_thread_governor {
    int threads;       /* available */
    bool one;          /* in use: one thread; else all */
    bool trial;        /* the other choice is being measured */
    double ns[2];      /* recent time per step: with all threads, with one */
    int64_t steps;     /* in the current window */
    int64_t time_ns;   /* time of these steps */
    int64_t waited_ns; /* part of it spent waiting for other threads */
    int hold, left;    /* windows between trials; windows until the next one */
} ab_thread_governor;

/* Starts with all `threads` in use. */
void ab_thread_governor_start(ab_thread_governor *governor, int threads);

/* Records a step of time_ns, waited_ns of which were spent waiting for other threads. Returns the number of
 * threads for the next step. */
int ab_thread_governor_step(ab_thread_governor *governor, int64_t time_ns, int64_t waited_ns);

AB_END_DECLS

#endif
