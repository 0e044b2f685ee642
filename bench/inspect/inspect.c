/* Walks the tensors: count, predict, keep a row, forget the census. */
#include "bench/inspect/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_inspect_find_limits(const ab_inspect_request *request, ab_inspect_limits *limits) {
    ab_ftz ftz = request->goal.ftz;
    for (int f = 0; f < request->formats; f++) {
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++)
            AB_TRY(ab_whatif_find_limits(request->format[f], ldexpf(1.0F, k), ftz,
                                         &limits->power[f][k - AB_INSPECT_LOW]));
        AB_TRY(ab_whatif_find_limits(request->format[f], request->scale, ftz, &limits->scale[f]));
    }
    return AB_OK;
}

/* Fills the row and lets the tensor narrow the advice. */
static ab_status predict(ab_inspect_result *result, int i, const ab_inspect_count *count,
                         const ab_census_totals *totals) {
    const ab_inspect_request *request = result->request;
    const ab_census *census = &count->census;
    ab_inspect_row *row = &result->row[i];
    row->zero = census->zero;
    row->nan = census->nan;
    row->inf = census->pos_inf + census->neg_inf;
    row->nonzero = ab_census_nonzero(census);
    row->min_abs = census->min_abs;
    row->max_abs = census->max_abs;
    for (int f = 0; f < request->formats; f++) {
        ab_whatif_evaluate(census, totals, &result->limits.scale[f], &row->at_scale[f]);
        AB_TRY(ab_scale_range_of(census, request->format[f], &request->goal, &row->advice[f]));
        ab_scale_advice_add(&result->advice[f], i, &row->advice[f]);
    }
    return AB_OK;
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
        status = predict(result, i, count, &totals);
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
    for (int f = 0; f < request->formats; f++) ab_scale_advice_begin(&result->advice[f], &request->goal);
    if (json) ab_inspect_json_begin(json);
    AB_TRY(count_all(result, json));
    for (int f = 0; f < request->formats; f++)
        AB_TRY(ab_scale_advice_finish(&result->advice[f], &result->pooled.census, request->format[f],
                                      &request->goal));
    if (json) ab_inspect_json_end(json, result);
    return AB_OK;
}

void ab_inspect_result_free(ab_inspect_result *result) {
    free(result->row);
    memset(result, 0, sizeof *result);
}
