/* Quality of a series of times: warm-up, outliers, bimodality. Uses + - * / and comparisons only. */
#include "reports/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 5 };

static const double mad_to_sigma = 1.4826, iqr_to_sigma = 1.349, outlier_sigmas = 10, gap_sigmas = 5;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *sorted_copy(const double *value, int n) {
    double *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (!copy) return NULL;
    memcpy(copy, value, (size_t)n * sizeof *copy);
    qsort(copy, (size_t)n, sizeof *copy, ascending);
    return copy;
}

/* Quantile of sorted values, by linear interpolation. */
static double quantile(const double *sorted, int n, double share) {
    double place = share * (n - 1);
    int low = (int)place;
    double rest = place - low;
    return low + 1 < n ? sorted[low] + rest * (sorted[low + 1] - sorted[low]) : sorted[n - 1];
}

/* Robust estimates of sorted values; `scratch` has room for n. */
static ab_robust robust_of(const double *sorted, int n, double tick, double *scratch) {
    ab_robust result = {quantile(sorted, n, 0.5), 0};
    for (int i = 0; i < n; i++) scratch[i] = fabs(sorted[i] - result.centre);
    result.sigma = mad_to_sigma * ab_stats_median(scratch, n);
    if (!(result.sigma > 0))
        result.sigma = (quantile(sorted, n, 0.75) - quantile(sorted, n, 0.25)) / iqr_to_sigma;
    if (!(result.sigma > 0)) result.sigma = tick;
    return result;
}

ab_status ab_stats_robust(const double *value, int n, double tick, ab_robust *result) {
    double *sorted = sorted_copy(value, n), *scratch = malloc(((size_t)n + 1) * sizeof *scratch);
    bool ready = sorted && scratch;
    *result = (ab_robust){0, 0};
    if (ready) *result = robust_of(sorted, n, tick, scratch);
    free(sorted);
    free(scratch);
    return ready ? AB_OK : ab_fail(AB_NO_MEMORY, "statistics: out of memory");
}

static double window_median(const double *value) {
    double window[WINDOW];
    memcpy(window, value, sizeof window);
    return ab_stats_median(window, WINDOW);
}

ab_status ab_stats_warmup(const double *value, int n, int *warmup, bool *never_steady) {
    int half = n / 2, most = (int)((long long)n * 3 / 10), k = most;
    ab_robust steady = {0, 0};
    *warmup = 0;
    *never_steady = false;
    if (n < 2 * WINDOW) return AB_OK;
    AB_TRY(ab_stats_robust(value + (n - half), half, 0, &steady));
    /* walk back from the latest allowed start while the windows agree with the steady state */
    while (k > 0 && fabs(window_median(value + k - 1) - steady.centre) <= 2 * steady.sigma) k--;
    *warmup = k;
    *never_steady = k == most;
    return AB_OK;
}

ab_status ab_stats_outliers(const double *value, int n, int *outliers) {
    ab_robust usual = {0, 0};
    *outliers = 0;
    if (n < 3) return AB_OK;
    AB_TRY(ab_stats_robust(value, n, 0, &usual));
    if (!(usual.sigma > 0)) usual.sigma = fabs(usual.centre) * 0x1p-40; /* all but a few are equal */
    for (int i = 0; i < n; i++) *outliers += fabs(value[i] - usual.centre) > outlier_sigmas * usual.sigma;
    return AB_OK;
}

ab_status ab_stats_bimodal(const double *value, int n, bool *bimodal, double mode[2]) {
    int least = n / 5 > 3 ? n / 5 : 3, cut = -1;
    if (5 * least < n) least++; /* at least 20 % */
    *bimodal = false;
    mode[0] = mode[1] = 0;
    if (n < 2 * least) return AB_OK;
    double *sorted = sorted_copy(value, n), *scratch = malloc((size_t)n * sizeof *scratch);
    bool ready = sorted && scratch;
    for (int i = least; ready && i <= n - least; i++)
        if (cut < 0 || sorted[i] - sorted[i - 1] > sorted[cut] - sorted[cut - 1]) cut = i;
    if (ready && cut > 0) {
        ab_robust low = robust_of(sorted, cut, 0, scratch);
        ab_robust high = robust_of(sorted + cut, n - cut, 0, scratch);
        double wider = low.sigma > high.sigma ? low.sigma : high.sigma;
        *bimodal = sorted[cut] - sorted[cut - 1] > gap_sigmas * wider;
        mode[0] = low.centre;
        mode[1] = high.centre;
    }
    free(sorted);
    free(scratch);
    return ready ? AB_OK : ab_fail(AB_NO_MEMORY, "statistics: out of memory");
}
