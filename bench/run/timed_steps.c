/* Chooses a number of steps by their median times. */
#include "bench/run/timed_steps.h"

#include "bench/timer/timer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_ns = 0.25e9, tolerated = 0.05;

/* NAN: there are none, or out of memory. */
static double median_of_first(const double *time_ns, int64_t count) {
    if (count < 1) return (double)NAN;
    double *copy = malloc((size_t)count * sizeof *copy);
    if (!copy) return (double)NAN;
    memcpy(copy, time_ns, (size_t)count * sizeof *copy);
    const double median = ab_median(copy, count);
    free(copy);
    return median;
}

int64_t ab_timed_steps(const double *time_ns, int64_t n, int64_t steps) {
    const double all = median_of_first(time_ns, n);
    if (!(all > 0)) return steps;
    const double enough = fmax(ceil(least_ns / all), AB_TIMED_STEPS_LEAST);
    for (double first = enough; first < (double)n && first < (double)steps; first *= 2)
        if (fabs(median_of_first(time_ns, (int64_t)first) / all - 1) <= tolerated) return (int64_t)first;
    return steps;
}
