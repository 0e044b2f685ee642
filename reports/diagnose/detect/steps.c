/* A cell's steps as a series: when the symptom began, and whether the scaler skipped as expected. */
#include "reports/diagnose/detect/steps.h"

#include "reports/record/json.h"
#include "reports/record/settings.h"
#include "reports/stats/stats.h"

#include <math.h>
#include <string.h>

typedef struct moments {
    int n;
    double mean, variance;
} moments;

/* Over the losses [first, end). */
static moments moments_of(const cJSON *losses, int first, int end) {
    moments m = {0, 0, 0};
    double sum = 0, squares = 0;
    int step = 0;
    const cJSON *loss;
    cJSON_ArrayForEach(loss, losses) {
        const int here = step++;
        if (here < first || here >= end || !cJSON_IsNumber(loss)) continue;
        m.n++;
        sum += loss->valuedouble;
        squares += loss->valuedouble * loss->valuedouble;
    }
    if (m.n > 0) m.mean = sum / m.n;
    if (m.n > 1) m.variance = fmax(0, (squares - sum * m.mean) / (m.n - 1));
    return m;
}

/* The last quarter is below the one before by two standard errors and by half a percent. */
bool ab_loss_falls(const ab_case *c) {
    const cJSON *losses = ab_json_at(c->facts.cell, "loss");
    const int n = c->facts.loss.steps;
    const moments before = moments_of(losses, n / 2, n - n / 4), after = moments_of(losses, n - n / 4, n);
    if (before.n < 2 || after.n < 2) return false;
    const double drop = before.mean - after.mean;
    return drop >
               c->facts.limits->trend_errors * sqrt(before.variance / before.n + after.variance / after.n) &&
           drop > c->facts.limits->trend_share * fabs(before.mean);
}

/* One after the last step at which the trailing mean of the gap is within the limit; -1 if it is at the end.
 */
static int behind_from(const ab_case *c) {
    enum { WINDOW = 20 };
    const cJSON *own = ab_json_at(c->facts.cell, "loss"), *reference = ab_json_at(c->facts.baseline, "loss");
    const cJSON *a = own ? own->child : NULL, *b = reference ? reference->child : NULL;
    double gap[WINDOW], sum = 0;
    int n = 0, from = 0;
    for (; cJSON_IsNumber(a) && cJSON_IsNumber(b); a = a->next, b = b->next, n++) {
        if (n >= WINDOW) sum -= gap[n % WINDOW];
        gap[n % WINDOW] = a->valuedouble - b->valuedouble;
        sum += gap[n % WINDOW];
        if (!(sum > c->gap_limit * (n < WINDOW ? n + 1 : WINDOW))) from = n + 1;
    }
    return from < n ? from : -1;
}

static int first_late_skip(const ab_case *c) {
    const cJSON *skipped;
    cJSON_ArrayForEach(skipped, ab_json_at(c->facts.cell, "skipped_steps")) {
        if (skipped->valuedouble >= c->facts.skip.late_from) return (int)skipped->valuedouble;
    }
    return -1;
}

int ab_first_symptom(const ab_case *c) {
    int first = c->nonfinite ? c->facts.loss.first_nonfinite : -1;
    const int skip = c->skipping ? first_late_skip(c) : -1, behind = c->behind ? behind_from(c) : -1;
    if (skip >= 0 && (first < 0 || skip < first)) first = skip;
    if (behind >= 0 && (first < 0 || behind < first)) first = behind;
    return first;
}

/* ---- skips ------------------------------------------------------------------------------------------ */

/* The step at which the scale first rises (the number of steps if never); *settled: the scale before that. */
static int first_rise(const ab_case *c, double *settled) {
    const cJSON *run;
    int step = 0;
    double scale = 0;
    *settled = 0;
    cJSON_ArrayForEach(run, ab_json_at(c->facts.cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0), *steps = cJSON_GetArrayItem(run, 1);
        if (!cJSON_IsNumber(value) || !cJSON_IsNumber(steps)) break;
        if (step > 0 && value->valuedouble > scale) return step;
        scale = *settled = value->valuedouble;
        step += (int)fmin(steps->valuedouble, 1e9);
    }
    return c->facts.loss.steps;
}

/* Rank of a step's loss among those around it: 0 lowest, 1 highest; NAN if too few are finite. */
static double rank_around(const cJSON *losses, int steps, int step) {
    enum { AROUND = 8, LEAST = 6 };
    const cJSON *own = cJSON_GetArrayItem(losses, step);
    int below = 0, compared = 0;
    if (!cJSON_IsNumber(own)) return (double)NAN;
    for (int i = step - AROUND < 0 ? 0 : step - AROUND; i <= step + AROUND && i < steps; i++) {
        const cJSON *other = cJSON_GetArrayItem(losses, i);
        if (i == step || !cJSON_IsNumber(other)) continue;
        compared++;
        below += other->valuedouble < own->valuedouble;
    }
    return compared < LEAST ? (double)NAN : (below + 0.5) / (compared + 1);
}

static void rank_skipped(const ab_case *c, int from, ab_skip_audit *audit) {
    enum { LEAST = 5 };
    const cJSON *losses = ab_json_at(c->facts.cell, "loss"), *skipped;
    double sum = 0;
    cJSON_ArrayForEach(skipped, ab_json_at(c->facts.cell, "skipped_steps")) {
        const int step = (int)skipped->valuedouble;
        const double rank = step >= from ? rank_around(losses, c->facts.loss.steps, step) : (double)NAN;
        if (isnan(rank)) continue;
        sum += rank;
        audit->ranked++;
    }
    audit->mean_rank = audit->ranked ? sum / audit->ranked : (double)NAN;
    audit->p_value = (double)NAN;
    if (audit->ranked < LEAST) return;
    const double z = (audit->mean_rank - 0.5) * sqrt(12.0 * audit->ranked);
    audit->p_value = erfc(fabs(z) / sqrt(2.0));
}

enum { MOST_LABELS = 64 };

static int read_counts(const cJSON *list, double *count, double *sum) {
    const cJSON *item;
    int n = 0;
    *sum = 0;
    cJSON_ArrayForEach(item, list) {
        if (n == MOST_LABELS || !cJSON_IsNumber(item)) return 0;
        *sum += count[n++] = item->valuedouble;
    }
    return n;
}

/* Compares the classes of the skipped batches with those of all. */
static void compare_labels(const ab_case *c, ab_skip_audit *audit) {
    const cJSON *labels = ab_json_at(c->facts.cell, "vitals.labels");
    double all[MOST_LABELS], skipped[MOST_LABELS], sum, most = 0;
    double lost;
    const int classes = read_counts(ab_json_at(labels, "counts"), all, &sum);
    if (classes < 2 || read_counts(ab_json_at(labels, "skipped_counts"), skipped, &lost) != classes) return;
    audit->labels = lost;
    audit->label_p = ab_sample_of_classes_p(skipped, all, classes);
    for (int i = 0; i < classes; i++) {
        const double more = skipped[i] / audit->labels - all[i] / sum;
        if (!(more > most)) continue;
        most = more;
        audit->label = i;
        audit->label_share = skipped[i] / audit->labels;
        audit->label_expected = all[i] / sum;
    }
}

ab_skip_audit ab_audit_skips(const ab_case *c) {
    const double spare = c->facts.limits->spare_skips;
    ab_skip_audit audit = {
        .p_value = (double)NAN, .mean_rank = (double)NAN, .label_p = (double)NAN, .label = -1};
    const cJSON *skipped;
    double settled;
    const int rise = first_rise(c, &settled);
    if (!c->facts.skip.dynamic) return audit;
    cJSON_ArrayForEach(skipped, ab_json_at(c->facts.cell, "skipped_steps")) {
        if (skipped->valuedouble <
            (c->skipping && rise > c->facts.skip.late_from ? c->facts.skip.late_from : rise))
            audit.warm_up++;
        else
            audit.later++;
    }
    const bool worked = c->facts.skip.skipped < c->facts.loss.steps;
    audit.expected_warm_up = worked && settled > 0 ? fmax(0, log2(c->facts.skip.first_scale / settled)) : 0;
    audit.expected_later = (c->facts.loss.steps - c->facts.skip.skipped) / (c->facts.skip.window + 1);
    audit.healthy = audit.warm_up <= audit.expected_warm_up + spare &&
                    audit.later <= 2 * audit.expected_later + spare && !c->skipping;
    audit.samples_lost = c->facts.skip.skipped * ab_json_number(c->facts.document, "config.batch", 0) *
                         ab_result_batches_per_step(c->facts.document);
    rank_skipped(c, audit.warm_up ? rise < c->facts.loss.steps ? rise : c->facts.skip.late_from : 0, &audit);
    compare_labels(c, &audit);
    return audit;
}
