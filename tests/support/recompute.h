/* The numbers of a summary, recomputed from the raw record of a document whose baseline is its first O0 cell.
 * Shares no code with reports/: what both find is right or wrong twice. */
#ifndef AB_TESTS_SUPPORT_RECOMPUTE_H
#define AB_TESTS_SUPPORT_RECOMPUTE_H

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST = 4096 };

static inline cJSON *member(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static inline const char *text_of(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(member(object, key));
}
static inline double number_of(const cJSON *object, const char *key) {
    const cJSON *value = member(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : (double)NAN;
}

static inline int numbers(const cJSON *array, double *value) {
    int n = 0;
    for (const cJSON *item = array ? array->child : NULL; item; item = item->next) {
        if (n < MOST) value[n++] = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    }
    return n;
}

/* The value (or mean of the two values) with as many below as above, found by counting. */
static inline double middle(const double *value, int n) {
    double low = 0, high = 0;
    for (int i = 0; i < n; i++) {
        int below = 0, equal = 0;
        for (int k = 0; k < n; k++) {
            below += value[k] < value[i];
            equal += value[k] == value[i];
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + equal) low = value[i];
        if (below <= n / 2 && n / 2 < below + equal) high = value[i];
    }
    return n ? (low + high) / 2 : (double)NAN;
}

static inline double expected_loss(const cJSON *document, const cJSON *cell) {
    static double loss[MOST];
    int n = numbers(member(cell, "loss"), loss), used = n < 20 ? n : 20;
    double sum = 0;
    if (n == 0 || n != (int)number_of(member(document, "config"), "steps")) return (double)NAN;
    for (int i = n - used; i < n; i++) sum += loss[i];
    return sum / used;
}

static inline const cJSON *plain_o0(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, member(document, "cells")) {
        if (strcmp(text_of(cell, "level"), "O0") == 0 && cJSON_IsNull(member(cell, "twin"))) return cell;
    }
    return NULL;
}

static inline double expected_gap(const cJSON *document, const cJSON *cell) {
    return expected_loss(document, cell) - expected_loss(document, plain_o0(document));
}

static inline double expected_time(const cJSON *cell, double *low, double *high) {
    static double time[MOST];
    double median[16];
    int n = 0;
    *low = *high = (double)NAN;
    const cJSON *process;
    cJSON_ArrayForEach(process, member(cell, "processes")) {
        int count = numbers(member(process, "step_time_ns"), time);
        if (count == 0) continue;
        median[n] = middle(time, count);
        *low = fmin(*low, median[n]);
        *high = fmax(*high, median[n++]);
    }
    return middle(median, n);
}

static inline double expected_rate(const cJSON *document, const cJSON *cell) {
    double low, high, batch = number_of(member(document, "config"), "batch");
    double seconds = expected_time(cell, &low, &high) / 1e9;
    return batch * number_of(cell, "steps_applied") / number_of(cell, "steps_total") / seconds;
}

/* Sum of a count over the tensors that were cast; over all when `all`; of one layer, or of every layer when
 * NULL. */
static inline double count_of(const cJSON *cell, const char *key, const char *layer, bool all) {
    double sum = 0;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, member(member(cell, "probes"), "tensors")) {
        bool counts = all || cJSON_IsTrue(member(tensor, "cast"));
        if (counts && (!layer || strcmp(text_of(tensor, "layer"), layer) == 0)) sum += number_of(tensor, key);
    }
    return sum;
}

static inline bool nothing_cast(const cJSON *cell) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, member(member(cell, "probes"), "tensors")) {
        if (cJSON_IsTrue(member(tensor, "cast"))) return false;
    }
    return true;
}

static inline double expected_worst(const cJSON *cell) {
    double worst = 0;
    bool all = nothing_cast(cell);
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, member(member(cell, "probes"), "tensors")) {
        const char *layer = text_of(tensor, "layer");
        double share = count_of(cell, "flushed", layer, all) / count_of(cell, "nonzero", layer, all);
        if (share > worst) worst = share;
    }
    return worst > 0 ? worst : (double)NAN;
}

static inline double expected_floor(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, member(document, "cells")) {
        if (cJSON_IsString(member(cell, "twin"))) return fabs(expected_gap(document, cell));
    }
    return 0;
}

/* What chance exceeds once in 20 runs, by one draw: its ratio to another draw from the same O0 is Cauchy with
 * centre 1/2 and half width sqrt(3)/2, which leaves +-11.0264 once in 20 times. */
static inline double expected_chance(const cJSON *document) { return 11.0264 * expected_floor(document); }

static inline bool expected_pass(const cJSON *document, const cJSON *cell) {
    double gap = expected_gap(document, cell), base = expected_loss(document, plain_o0(document));
    double allowed = fmax(expected_chance(document), 0.05 * base);
    return strcmp(text_of(cell, "status"), "ok") == 0 && number_of(cell, "nonfinite_losses") == 0 &&
           number_of(cell, "steps_applied") >= 0.95 * number_of(cell, "steps_total") && gap <= allowed;
}

#endif
