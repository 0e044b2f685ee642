/* The loss gap to O0: its standard error, and what being a few steps late explains of it. */
#include "reports/diagnose/facts/facts.h"

#include "reports/record/json.h"
#include "reports/record/summary.h"

#include <math.h>

/* At most that of two cells with O0's variance, so unstable losses do not raise the limit. */
double ab_facts_gap_error(const ab_facts *facts) {
    const cJSON *a = ab_json_at(facts->cell, "loss"), *b = ab_json_at(facts->baseline, "loss");
    const int n = cJSON_GetArraySize(a), used = n < AB_SUMMARY_FINAL_LOSSES ? n : AB_SUMMARY_FINAL_LOSSES;
    double sum = 0, squares = 0, own = 0, own_squares = 0;
    if (used < 2 || cJSON_GetArraySize(b) != n) return 0;
    for (int i = n - used; i < n; i++) {
        const cJSON *x = cJSON_GetArrayItem(a, i), *y = cJSON_GetArrayItem(b, i);
        if (!cJSON_IsNumber(x) || !cJSON_IsNumber(y)) return 0;
        const double gap = x->valuedouble - y->valuedouble;
        sum += gap;
        squares += gap * gap;
        own += y->valuedouble;
        own_squares += y->valuedouble * y->valuedouble;
    }
    const double variance = (squares - sum * sum / used) / (used - 1),
                 most = 2 * (own_squares - own * own / used) / (used - 1);
    return sqrt(fmax(0, fmin(variance, most)) / used);
}

/* What O0 gained in its last steps (rounding decides when a net leaves a plateau, and on the slope after it a
 * few steps make a large difference), and the cost of skipped steps. */
double ab_facts_gap_lateness(const ab_facts *facts) {
    const int later = (int)(facts->baseline_loss.steps * facts->limits->gap_later);
    return ab_facts_cost_of_steps(facts, later) + facts->skip_cost;
}
