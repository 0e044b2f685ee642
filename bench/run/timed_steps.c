/* Chooses a number of steps by their median times. */
#include "bench/run/timed_steps.h"

#include "bench/timer/timer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_ns = 0.25e9, tolerated = 0.05;

/* The median of the first `count`, which keep their places. NAN: out of memory. */
static double median_of_first(const double *time_ns, int64_t count) {
    double *copy = malloc((size_t)count * sizeof *copy);
    if (!copy) return (double)NAN;
    memcpy(copy, time_ns, (size_t)count * sizeof *copy);
    const double median = ab_median(copy, count);
    free(copy);
    return median;
}

int64_t ab_timed_steps(double *time_ns, int64_t n, int64_t steps) {
    if (n <= AB_TIMED_STEPS_LEAST) return steps;
    const double all = median_of_first(time_ns, n);
    if (!(all > 0)) return steps;
    const double needed = fmax(ceil(least_ns / all), AB_TIMED_STEPS_LEAST);
    if (needed >= (double)n || needed >= (double)steps) return steps;
    const double first = ab_median(time_ns, (int64_t)needed);
    return fabs(first / all - 1) <= tolerated ? (int64_t)needed : steps;
}
