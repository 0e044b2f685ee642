/* For each tensor: count, predict, keep a row, discard the census. */
#include "bench/inspect/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_inspect_find_limits(const ab_inspect_question *question, ab_inspect_limits *limits) {
    ab_ftz ftz = question->goal.ftz;
    for (int f = 0; f < question->formats; f++) {
        for (int k = AB_INSPECT_LOW; k <= AB_INSPECT_HIGH; k++)
            AB_TRY(ab_whatif_find_limits(question->format[f], ldexpf(1.0F, k), ftz,
                                         &limits->power[f][k - AB_INSPECT_LOW]));
        AB_TRY(ab_whatif_find_limits(question->format[f], question->scale, ftz, &limits->scale[f]));
    }
    return AB_OK;
}

/* Fills the row and narrows the advice by this tensor. */
static ab_status predict(ab_inspect_result *result, int i, const ab_inspect_count *count,
                         const ab_census_totals *totals) {
    const ab_inspect_question *question = result->question;
    const ab_census *census = &count->census;
    ab_inspect_row *row = &result->row[i];
    row->zero = census->zero;
    row->nan = census->nan;
    row->inf = census->pos_inf + census->neg_inf;
    row->nonzero = ab_census_nonzero(census);
    row->min_abs = census->min_abs;
    row->max_abs = census->max_abs;
    for (int f = 0; f < question->formats; f++) {
        ab_whatif_evaluate(census, totals, &result->limits.scale[f], &row->at_scale[f]);
        AB_TRY(ab_scale_range_of(census, question->format[f], &question->goal, &row->advice[f]));
        ab_scale_advice_add(&result->advice[f], i, &row->advice[f]);
    }
    return AB_OK;
}

static ab_inspect_tensor describe(const ab_inspect_pick *pick) {
    const ab_tensor_entry *entry = pick->entry;
    return (ab_inspect_tensor){.name = entry->name,
                               .path = pick->file->path,
                               .element = entry->element->name,
                               .dtype = entry->dtype,
                               .ndim = entry->ndim,
                               .dim = entry->dim,
                               .count = entry->count};
}

static ab_status count_all(const ab_inspect_selection *selection, ab_inspect_result *result, FILE *json) {
    ab_inspect_count *count = malloc(sizeof *count);
    if (!count) return ab_fail(AB_NO_MEMORY, "out of memory for counts");
    ab_status status = AB_OK;
    for (int i = 0; i < result->rows && status == AB_OK; i++) {
        ab_census_totals totals;
        status = ab_inspect_tensor_count(&selection->pick[i], count);
        if (status != AB_OK) break;
        ab_census_total(&count->census, &totals);
        status = predict(result, i, count, &totals);
        ab_inspect_merge(&result->pooled, count);
        if (json) ab_inspect_json_tensor(json, result, i, count, &totals);
    }
    free(count);
    return status;
}

/* Fills the names of all tensors before counting. */
static ab_status begin(const ab_inspect_request *request, const ab_inspect_selection *selection,
                       ab_inspect_result *result) {
    memset(result, 0, sizeof *result);
    result->question = &request->question;
    result->files = selection->files;
    result->rows = selection->picks;
    result->skips = selection->skipped;
    ab_census_clear(&result->pooled.census);
    AB_TRY(ab_inspect_find_limits(result->question, &result->limits));
    result->row = calloc((size_t)result->rows + 1, sizeof *result->row);
    result->skipped = calloc((size_t)result->skips + 1, sizeof *result->skipped);
    if (!result->row || !result->skipped)
        return ab_fail(AB_NO_MEMORY, "out of memory for %d rows", selection->picks);
    for (int i = 0; i < result->rows; i++) result->row[i].tensor = describe(&selection->pick[i]);
    for (int i = 0; i < result->skips; i++) result->skipped[i] = describe(&selection->pick[result->rows + i]);
    return AB_OK;
}

ab_status ab_inspect_run(const ab_inspect_request *request, const ab_inspect_selection *selection, FILE *json,
                         ab_inspect_result *result) {
    const ab_inspect_question *question = &request->question;
    AB_TRY(begin(request, selection, result));
    for (int f = 0; f < question->formats; f++) ab_scale_advice_begin(&result->advice[f], &question->goal);
    if (json) ab_inspect_json_begin(json);
    AB_TRY(count_all(selection, result, json));
    for (int f = 0; f < question->formats; f++)
        AB_TRY(ab_scale_advice_finish(&result->advice[f], &result->pooled.census, question->format[f],
                                      &question->goal));
    if (json) ab_inspect_json_end(json, result);
    return AB_OK;
}

void ab_inspect_result_free(ab_inspect_result *result) {
    free(result->row);
    free(result->skipped);
    memset(result, 0, sizeof *result);
}
