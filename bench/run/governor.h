/* How often to probe, and what it costs. All cells of a run are probed at the same steps: multiples of one
 * interval, which --probe-every gives or ab_probe_interval chooses before the first cell runs, from what a
 * few steps of every level took. So the choice does not depend on how fast a cell is or becomes.
 *
 * Reports need gradients from the whole run, also if it is short. So at least AB_PROBE_STEPS_LEAST steps are
 * probed (every tenth where the run has fewer of those), whatever they cost. Pure arithmetic on the times
 * passed in. */
#ifndef AB_BENCH_RUN_GOVERNOR_H
#define AB_BENCH_RUN_GOVERNOR_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_GOVERNOR_RECENT = 9, AB_PROBE_STEPS_LEAST = 8 };

/* What a step of a cell takes, and what probing adds to it, in ns. */
typedef struct ab_probe_cost {
    double step_ns, probe_ns;
} ab_probe_cost;

/* The interval of probed steps: the first of 10, 15, 20, 30, 40, 60, ... at which probing adds at most
 * `budget` to the time of the run, by the cell where it adds most. processes: how many times a cell trains in
 * all for every time it is probed (3 rounds, the first of them probed: 3). cost[costs]: may be empty, of a
 * run too short for a choice. */
int64_t ab_probe_interval(double budget, int64_t steps, double processes, const ab_probe_cost *cost,
                          int costs);

/* Whether a run of that many steps leaves a choice: otherwise every tenth step is probed. */
bool ab_probe_has_choice(int64_t steps);

/* The last few times, for a median that one interrupted step does not change. */
typedef struct ab_recent {
    int64_t value[AB_GOVERNOR_RECENT];
    int count, next;
} ab_recent;

typedef struct ab_governor {
    int64_t every; /* steps that are multiples of this are probed */
    int64_t probed, steps;
    ab_recent usual, cost; /* ns of unprobed steps; ns that probing added to a step */
} ab_governor;

/* every: at least 1. */
void ab_governor_start(ab_governor *governor, int64_t every);

/* Returns whether to probe the next step. Steps are counted by ab_governor_note. */
bool ab_governor_due(const ab_governor *governor);

/* Records a step: its total time and, if probed, the measured time of the probes. */
void ab_governor_note(ab_governor *governor, bool probed, int64_t time_ns, int64_t probes_ns);

/* Counts a step whose time is not usable because it was replayed. */
void ab_governor_skip(ab_governor *governor);

/* The cost of probing so far, in ns and as a share of these steps without it (NAN until there is an
 * unprobed step). */
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
