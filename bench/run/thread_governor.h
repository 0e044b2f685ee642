/* How many threads a step uses. On a shared machine a second thread can cost more than it saves: if it is
 * preempted in the middle of a chunk, the caller waits for a whole time slice. The governor measures step
 * times and falls back to one thread where that is faster. It affects speed only: no result depends on the
 * number of threads. */
#ifndef AB_BENCH_RUN_THREAD_GOVERNOR_H
#define AB_BENCH_RUN_THREAD_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
