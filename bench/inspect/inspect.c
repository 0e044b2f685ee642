/* Walks the tensors: count, predict, keep a row, forget the census. */
#include "bench/inspect/inspect.h"

#include <stdlib.h>
#include <string.h>

static void predict(const ab_inspect_result *result, const ab_inspect_count *count,
                    const ab_census_totals *totals, ab_inspect_row *row) {
    const ab_census *census = &count->census;
    row->zero = census->zero;
    row->nan = census->nan;
    row->inf = census->pos_inf + census->neg_inf;
    row->nonzero = ab_census_nonzero(census);
    row->min_abs = census->min_abs;
    row->max_abs = census->max_abs;
    for (int f = 0; f < result->request->formats; f++) {
        ab_whatif_evaluate(census, totals, &result->limits.scale[f], &row->at_scale[f]);
        row->advice[f] = ab_inspect_advise(&result->limits, f, census, totals);
    }
}

/* Narrows what suits every tensor by what suits one. */
static void narrow(ab_inspect_every *every, const ab_inspect_advice *advice, int row) {
    if (advice->vacuous) return;
    if (every->low_row < 0 || advice->k_lo > every->advice.k_lo) {
        every->advice.k_lo = advice->k_lo;
        every->low_row = row;
    }
    if (every->high_row < 0 || advice->k_hi < every->advice.k_hi) {
        every->advice.k_hi = advice->k_hi;
        every->high_row = row;
    }
    every->advice.vacuous = false;
}

static void conclude(ab_inspect_result *result) {
    ab_census_totals totals;
    ab_census_total(&result->pooled.census, &totals);
    for (int f = 0; f < result->request->formats; f++) {
        result->every[f] = (ab_inspect_every){{true, AB_INSPECT_MIN, AB_INSPECT_MAX}, -1, -1};
        for (int i = 0; i < result->selection->picks; i++)
            narrow(&result->every[f], &result->row[i].advice[f], i);
        result->pooled_advice[f] = ab_inspect_advise(&result->limits, f, &result->pooled.census, &totals);
    }
}

static ab_status count_all(ab_inspect_result *result, FILE *json) {
    ab_inspect_count *count = malloc(sizeof *count);
    if (!count) return ab_fail(AB_NO_MEMORY, "out of memory for counts");
    ab_status status = AB_OK;
    for (int i = 0; i < result->selection->picks && status == AB_OK; i++) {
        ab_census_totals totals;
        result->row[i].pick = result->selection->pick[i];
        status = ab_inspect_tensor(&result->row[i].pick, count);
        if (status != AB_OK) break;
        ab_census_total(&count->census, &totals);
        predict(result, count, &totals, &result->row[i]);
        ab_inspect_merge(&result->pooled, count);
        if (json) ab_inspect_json_tensor(json, result, i, count, &totals);
    }
    free(count);
    return status;
}

ab_status ab_inspect_run(const ab_inspect_request *request, const ab_inspect_selection *selection, FILE *json,
                         ab_inspect_result *result) {
    memset(result, 0, sizeof *result);
    result->request = request;
    result->selection = selection;
    ab_census_clear(&result->pooled.census);
    AB_TRY(ab_inspect_find_limits(request, &result->limits));
    result->row = calloc((size_t)selection->picks, sizeof *result->row);
    if (!result->row) return ab_fail(AB_NO_MEMORY, "out of memory for %d rows", selection->picks);
    if (json) ab_inspect_json_begin(json);
    AB_TRY(count_all(result, json));
    conclude(result);
    if (json) ab_inspect_json_end(json, result);
    return AB_OK;
}

void ab_inspect_result_free(ab_inspect_result *result) {
    free(result->row);
    memset(result, 0, sizeof *result);
}
