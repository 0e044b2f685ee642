/* Reading of probes' records. */
#include "reports/record/observed.h"

#include "kernels/core/log.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

static ab_observed_newer newer_of;

void ab_observed_set_newer(ab_observed_newer newer) { newer_of = newer; }

bool ab_observed_document(const cJSON *document) { return cJSON_IsObject(ab_json_at(document, "probe")); }

/* ---- journals -------------------------------------------------------------------------------- */

ab_status ab_observed_continue(const char *path, cJSON **document) {
    char *text = NULL;
    if (!newer_of || !ab_observed_document(*document) || ab_json_is_true(*document, "run.complete"))
        return AB_OK;
    const ab_status status = newer_of(path, &text);
    if (status == AB_NO_MEMORY) return status;
    if (status != AB_OK) ab_warn("%s; the document is used as it is", ab_error_message());
    cJSON *newer = text ? cJSON_Parse(text) : NULL;
    free(text);
    if (newer && strcmp(ab_json_text(newer, "run.id", "?"), ab_json_text(*document, "run.id", "")) == 0) {
        cJSON_Delete(*document);
        *document = newer;
    } else {
        cJSON_Delete(newer);
    }
    return AB_OK;
}

/* ---- losses ---------------------------------------------------------------------------------- */

static cJSON *repeated(const cJSON *losses, double stride, double steps, double *nulls) {
    cJSON *all = cJSON_CreateArray();
    const cJSON *loss;
    double step = 0;
    *nulls = 0;
    cJSON_ArrayForEach(loss, losses) {
        for (double i = 0; all && i < stride && step < steps; i++, step++) {
            cJSON *copy = cJSON_IsNumber(loss) ? cJSON_CreateNumber(loss->valuedouble) : cJSON_CreateNull();
            if (copy && cJSON_AddItemToArray(all, copy)) {
                *nulls += cJSON_IsNull(copy);
                continue;
            }
            cJSON_Delete(copy);
            cJSON_Delete(all);
            all = NULL;
        }
    }
    return all;
}

static ab_status expand(cJSON *cell) {
    enum { MOST_STEPS = 1 << 27 };
    double nulls;
    const double stride = ab_json_number(cell, "loss_stride", 1),
                 steps = ab_json_number(cell, "steps_total", 0);
    if (!(stride > 1) || !(steps <= MOST_STEPS)) return AB_OK;
    cJSON *all = repeated(ab_json_at(cell, "loss"), stride, steps, &nulls);
    cJSON *count = cJSON_CreateNumber(nulls);
    if (all && count) {
        cJSON_ReplaceItemInObjectCaseSensitive(cell, "loss", all);
        cJSON_ReplaceItemInObjectCaseSensitive(cell, "nonfinite_losses", count);
        cJSON_DeleteItemFromObjectCaseSensitive(cell, "loss_stride");
        return AB_OK;
    }
    cJSON_Delete(all);
    cJSON_Delete(count);
    return ab_fail(AB_NO_MEMORY, "out of memory for the losses of %.0f steps", steps);
}

ab_status ab_observed_expand(cJSON *document) {
    cJSON *cell, *cells = cJSON_GetObjectItemCaseSensitive(document, "cells");
    if (!ab_observed_document(document)) return AB_OK;
    cJSON_ArrayForEach(cell, cells) AB_TRY(expand(cell));
    return AB_OK;
}
