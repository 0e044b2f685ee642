/* Change points of a series. Independent of documents. */
#include "reports/stats/changes.h"

#include "reports/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct search {
    const double *y; /* logarithms */
    int n;
    double sigma, penalty;
    double *sorted, *best; /* best[t]: least cost of the first t values */
    int *from;             /* from[t]: start of the last segment of that optimum */
} search;

/* Robust sigma of y[0..n) from differences of neighbours. At least 0.01 %, the precision of times. */
static double scatter(const double *y, int n, double *work) {
    if (n < 2) return 1e-4;
    for (int i = 0; i + 1 < n; i++) work[i] = fabs(y[i + 1] - y[i]);
    return fmax(ab_stats_median(work, n - 1) / (0.6745 * sqrt(2.0)), 1e-4);
}

/* Inserts x into sorted[0..n). */
static void insert(double *sorted, int n, double x) {
    int i = n;
    while (i > 0 && sorted[i - 1] > x) i--;
    memmove(sorted + i + 1, sorted + i, (size_t)(n - i) * sizeof *sorted);
    sorted[i] = x;
}

/* Sum of the distances to the median. */
static double spread(const double *sorted, int n) {
    double sum = 0;
    for (int i = 0; i < n / 2; i++) sum += sorted[n - 1 - i] - sorted[i];
    return sum;
}

/* Evaluates every segment that begins at s. */
static void extend(search *p, int s) {
    for (int t = s + 1; t <= p->n; t++) {
        insert(p->sorted, t - s - 1, p->y[t - 1]);
        if (t - s < AB_CHANGES_LEAST && p->n >= AB_CHANGES_LEAST) continue;
        double cost = p->best[s] + spread(p->sorted, t - s) / p->sigma + p->penalty;
        if (cost >= p->best[t]) continue;
        p->best[t] = cost;
        p->from[t] = s;
    }
}

static double median_of(const double *value, int first, int count, double *work) {
    memcpy(work, value + first, (size_t)count * sizeof *work);
    return ab_stats_median(work, count);
}

/* Reads the segments from the end backwards, then reverses them. */
static int read_segments(const search *p, ab_segment *segment) {
    int count = 0;
    for (int t = p->n; t > 0; t = p->from[t]) segment[count++] = (ab_segment){p->from[t], t - p->from[t], 0};
    for (int i = 0; i < count / 2; i++) {
        ab_segment other = segment[i];
        segment[i] = segment[count - 1 - i];
        segment[count - 1 - i] = other;
    }
    return count;
}

/* Merges the neighbours that differ least until all differ by the guard. */
static void merge(const double *value, double guard, ab_segment *segment, int *count, double *work) {
    for (int i = 0; i < *count; i++)
        segment[i].median = median_of(value, segment[i].first, segment[i].count, work);
    while (*count > 1) {
        int least = 0;
        double smallest = HUGE_VAL;
        for (int i = 0; i + 1 < *count; i++) {
            double change = fabs(log(segment[i + 1].median / segment[i].median));
            if (change >= smallest) continue;
            smallest = change;
            least = i;
        }
        if (smallest >= log1p(guard)) return;
        segment[least].count += segment[least + 1].count;
        segment[least].median = median_of(value, segment[least].first, segment[least].count, work);
        --*count;
        memmove(segment + least + 1, segment + least + 2, (size_t)(*count - least - 1) * sizeof *segment);
    }
}

ab_status ab_changes_find(const double *value, int n, double guard, ab_segment *segment, int *count) {
    size_t room = (size_t)n + 1;
    double *y = malloc(3 * room * sizeof *y);
    int *from = calloc(room, sizeof *from);
    ab_status status = AB_OK;
    *count = 0;
    if (!y || !from) {
        status = ab_fail(AB_NO_MEMORY, "out of memory while looking for changes");
        goto out;
    }
    search p = {y, n, 0, AB_CHANGES_PENALTY * log(n), y + room, y + 2 * room, from};
    for (int i = 0; i < n; i++) y[i] = log(value[i]);
    p.sigma = scatter(y, n, p.sorted);
    for (int t = 0; t <= n; t++) p.best[t] = t == 0 ? -p.penalty : HUGE_VAL;
    for (int s = 0; s < n; s++)
        if (isfinite(p.best[s])) extend(&p, s);
    *count = read_segments(&p, segment);
    merge(value, guard, segment, count, p.sorted);
out:
    free(y);
    free(from);
    return status;
}

void ab_changes_exact(const double *value, int n, ab_segment *segment, int *count) {
    *count = 0;
    for (int i = 0; i < n; i++) {
        bool same = i > 0 && value[i] == value[i - 1];
        if (!same) segment[(*count)++] = (ab_segment){i, 0, value[i]};
        segment[*count - 1].count++;
    }
}
