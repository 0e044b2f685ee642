/* The clock, medians and the warm-up rule. */
#define _POSIX_C_SOURCE 200809L
#include "bench/run/timer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { WINDOW = 5 };

int64_t ab_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double ab_median(double *values, int64_t n) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double window_median(const int64_t *time_ns) {
    double window[WINDOW];
    for (int i = 0; i < WINDOW; i++) window[i] = (double)time_ns[i];
    return ab_median(window, WINDOW);
}

int64_t ab_warmup_steps(const int64_t *time_ns, int64_t n) {
    int64_t half = n / 2, most = n * 3 / 10;
    if (n < 2 * WINDOW) return 0;
    double *values = malloc((size_t)half * sizeof *values);
    if (!values) return 0;
    for (int64_t i = 0; i < half; i++) values[i] = (double)time_ns[n - half + i];
    double centre = ab_median(values, half);
    for (int64_t i = 0; i < half; i++) values[i] = fabs((double)time_ns[n - half + i] - centre);
    double spread = 1.4826 * ab_median(values, half);
    free(values);
    int64_t k =
        most; /* walk back from the latest allowed start while the windows agree with the steady state */
    while (k > 0 && fabs(window_median(time_ns + k - 1) - centre) <= 2 * spread) k--;
    return k;
}
