/* How many threads a step uses. On a machine that others use too, a second thread can cost more than it
 * gives: when it loses its processor in the middle of a chunk, the caller waits for a whole time slice. This
 * watches the time of steps and falls back to one thread where that is faster. It changes speed only: no
 * result depends on the number of threads. */
#ifndef AB_BENCH_RUN_THREAD_GOVERNOR_H
#define AB_BENCH_RUN_THREAD_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ab_thread_governor {
    int threads;       /* there are */
    bool one;          /* in use: one, or all */
    bool trial;        /* the other choice is being tried */
    double ns[2];      /* of a step, lately: with all, with one */
    int64_t steps;     /* of the window under way */
    int64_t time_ns;   /* of these */
    int64_t waited_ns; /* of that, waiting for other threads */
    int hold, left;    /* windows between trials; until the next one */
} ab_thread_governor;

/* Begins with all `threads` in use. */
void ab_thread_governor_start(ab_thread_governor *governor, int threads);

/* A step took time_ns, and waited_ns of it for other threads. Returns how many threads the next step is to
 * use. */
int ab_thread_governor_step(ab_thread_governor *governor, int64_t time_ns, int64_t waited_ns);

#endif
