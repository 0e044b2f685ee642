/* The clock, medians, and the warm-up as defined for a record. */
#define _POSIX_C_SOURCE 200809L
#include "bench/timer/timer.h"

#include "kernels/core/text.h"
#include "reports/stats/stats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t ab_monotonic_ns(void) { return read_clock(CLOCK_MONOTONIC); }
int64_t ab_processor_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }
int64_t ab_thread_processor_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double ab_median(double *values, int64_t n) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int64_t ab_warmup_steps(const int64_t *time_ns, int64_t n) {
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    int warmup = 0;
    bool never_steady;
    if (!values) return 0;
    for (int64_t i = 0; i < n; i++) values[i] = (double)time_ns[i];
    if (ab_stats_warmup(values, (int)n, &warmup, &never_steady) != AB_OK) warmup = 0;
    free(values);
    return warmup;
}

void ab_busy_loop(int64_t loops) {
    static _Thread_local volatile uint64_t result;
    uint64_t x = result | 1;
    for (int64_t i = 0; i < loops; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        x ^= x >> 33;
    }
    result = x;
}

int64_t ab_clock_loop_ns(void) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < 8; i++) {
        int64_t begun = ab_monotonic_ns();
        ab_busy_loop(AB_CLOCK_LOOPS);
        int64_t took = ab_monotonic_ns() - begun;
        if (took < least) least = took;
    }
    return least;
}

int64_t ab_run_delay_ns(void) {
    DIR *tasks = opendir("/proc/self/task");
    int64_t sum = 0;
    bool known = false;
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[320];
        long long ran, waited;
        ab_text_exact(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file && fscanf(file, "%lld %lld", &ran, &waited) == 2) {
            sum += waited;
            known = true;
        }
        if (file) fclose(file);
    }
    if (tasks) closedir(tasks);
    return known ? sum : -1;
}
