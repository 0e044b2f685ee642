/* Sums the columns of steps of a cell's tensors. */
#include "reports/record/sampling.h"

#include "reports/record/json.h"

#include <string.h>

enum { FEWEST = 3 }; /* a trend of n columns leaves n - 2 degrees of freedom */

bool ab_tensor_counts(const cJSON *tensor, bool cast_only, const char *layer) {
    if (cast_only && !ab_json_is_true(tensor, "cast")) return false;
    return !layer || strcmp(layer, ab_json_text(tensor, "layer", "")) == 0;
}

typedef struct columns {
    int n;
    double nonzero[AB_FLUSH_COLUMNS], part[AB_FLUSH_COLUMNS];
} columns;

/* nonzero, part: lists of as many columns. */
static void add_columns(const cJSON *nonzero, const cJSON *part, columns *sum) {
    nonzero = cJSON_GetArrayItem(nonzero, 0);
    part = cJSON_GetArrayItem(part, 0);
    for (int i = 0; nonzero && part && i < AB_FLUSH_COLUMNS; i++) {
        sum->nonzero[i] += nonzero->valuedouble;
        sum->part[i] += part->valuedouble;
        if (i >= sum->n) sum->n = i + 1;
        nonzero = nonzero->next;
        part = part->next;
    }
}

static ab_sampling bound(const cJSON *cell, const columns *sum, ab_flush_interval *interval) {
    const double all = ab_json_number(cell, "steps_total", 0),
                 probed = ab_json_number(cell, "probes.steps_probed", all);
    if (!(probed < all)) return AB_EVERY_STEP;
    if (sum->n < FEWEST) return AB_TOO_FEW_STEPS;
    ab_flush_interval_of(sum->nonzero, sum->part, sum->n, 1 - probed / all, interval);
    return AB_SOME_STEPS;
}

ab_sampling ab_flushed_of_all_steps(const cJSON *cell, bool cast_only, const char *layer,
                                    ab_flush_interval *interval) {
    const cJSON *tensor;
    columns sum = {0};
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        if (!ab_tensor_counts(tensor, cast_only, layer)) continue;
        add_columns(ab_json_at(tensor, "steps.nonzero"), ab_json_at(tensor, "steps.flushed"), &sum);
    }
    return bound(cell, &sum, interval);
}

ab_sampling ab_lost_of_all_steps(const cJSON *cell, ab_flush_interval *interval) {
    const cJSON *param;
    columns sum = {0};
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) {
        add_columns(ab_json_at(param, "steps.nonzero"), ab_json_at(param, "steps.lost"), &sum);
    }
    return bound(cell, &sum, interval);
}
