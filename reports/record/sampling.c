/* Sums the columns of steps of a cell's tensors. */
#include "reports/record/sampling.h"

#include "reports/record/json.h"

enum { FEWEST = 3 }; /* a trend of n columns leaves n - 2 degrees of freedom */

typedef struct columns {
    int n;
    double nonzero[AB_FLUSH_COLUMNS], flushed[AB_FLUSH_COLUMNS];
} columns;

static void add_tensor(const cJSON *tensor, columns *sum) {
    const cJSON *nonzero = cJSON_GetArrayItem(ab_json_at(tensor, "steps.nonzero"), 0),
                *flushed = cJSON_GetArrayItem(ab_json_at(tensor, "steps.flushed"), 0);
    for (int i = 0; nonzero && flushed && i < AB_FLUSH_COLUMNS; i++) {
        sum->nonzero[i] += nonzero->valuedouble;
        sum->flushed[i] += flushed->valuedouble;
        if (i >= sum->n) sum->n = i + 1;
        nonzero = nonzero->next;
        flushed = flushed->next;
    }
}

ab_sampling ab_flushed_of_all_steps(const cJSON *cell, bool cast_only, ab_flush_interval *interval) {
    const double all = ab_json_number(cell, "steps_total", 0),
                 probed = ab_json_number(cell, "probes.steps_probed", all);
    const cJSON *tensor;
    columns sum = {0};
    if (!(probed < all)) return AB_EVERY_STEP;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (!cast_only || ab_json_is_true(tensor, "cast")) add_tensor(tensor, &sum);
    }
    if (sum.n < FEWEST) return AB_TOO_FEW_STEPS;
    ab_flush_interval_of(sum.nonzero, sum.flushed, sum.n, 1 - probed / all, interval);
    return AB_SOME_STEPS;
}
