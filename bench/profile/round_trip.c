/* Two chunks of a parallel loop, which two threads run at the same time, hand a counter to and fro. */
#include "bench/profile/round_trip.h"

#include "bench/timer/timer.h"
#include "kernels/core/parallel.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { TRIPS = 200, MEANS = 20, POLLS = 1000, CACHE_LINE = 64 };

/* The first chunk makes the counter odd, the second even again. */
typedef struct game {
    _Alignas(CACHE_LINE) _Atomic int64_t counter;
    _Alignas(CACHE_LINE) _Atomic bool over;
    int64_t until;
    double least_ns;
} game;

/* Waits for the counter to be `value`. Returns false if the time is up, or the other has given up. */
static bool await(game *g, int64_t value) {
    while (!atomic_load(&g->over)) {
        for (int i = 0; i < POLLS; i++)
            if (atomic_load(&g->counter) == value) return true;
        if (ab_monotonic_ns() > g->until) atomic_store(&g->over, true);
    }
    return false;
}

static void serve(game *g) {
    int64_t value = 0;
    for (int mean = 0; mean < MEANS; mean++) {
        const int64_t before = ab_monotonic_ns();
        for (int trip = 0; trip < TRIPS; trip++, value += 2) {
            atomic_store(&g->counter, value + 1);
            if (!await(g, value + 2)) return;
        }
        const double mean_ns = (double)(ab_monotonic_ns() - before) / TRIPS;
        if (g->least_ns <= 0 || mean_ns < g->least_ns) g->least_ns = mean_ns;
    }
    atomic_store(&g->over, true);
}

static void reply(game *g) {
    for (int64_t value = 1; await(g, value); value += 2) atomic_store(&g->counter, value + 1);
}

static void play(void *argument, int64_t chunk, int thread) {
    (void)thread;
    if (chunk == 0)
        serve(argument);
    else
        reply(argument);
}

double ab_round_trip_ns(int64_t patience_ns) {
    if (ab_parallel_threads() < 2) return 0;
    game g = {.until = ab_monotonic_ns() + patience_ns};
    ab_parallel_for(2, play, &g);
    return g.least_ns;
}
