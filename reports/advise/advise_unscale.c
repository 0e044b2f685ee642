/* Gradients of a run whose loss scale changed, without it: a probe divides every step's by the scale of that
 * step. Put in place of the scaled ones here, so that the advice reads a run at scale 1. */
#include "reports/advise/advise.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"

#include <math.h>

/* Moves members of `from` into `to` under other names. */
static bool put(cJSON *to, const char *key, cJSON *value) {
    if (!value) return false;
    cJSON_DeleteItemFromObjectCaseSensitive(to, key);
    return cJSON_AddItemToObject(to, key, value);
}

/* Octaves to the overflow limit by columns; *top: log2 of the largest of all. */
static cJSON *margins_of(const cJSON *largest, const ab_format *half, double *top) {
    cJSON *list = cJSON_CreateArray();
    const cJSON *item;
    cJSON_ArrayForEach(item, largest) {
        const bool known = cJSON_IsNumber(item);
        if (known) *top = fmax(*top, item->valuedouble);
        const double margin = log2(ab_format_overflow_limit(half)) - (known ? item->valuedouble : 0);
        if (!cJSON_AddItemToArray(list, known ? cJSON_CreateNumber(margin) : cJSON_CreateNull())) break;
    }
    return list;
}

static bool unscale_tensor(cJSON *tensor, const ab_format *half, ab_advise_unscaled *about) {
    const cJSON *unscaled = ab_json_at(tensor, "unscaled"), *cut;
    cJSON *exponents = cJSON_CreateObject(), *steps = cJSON_GetObjectItemCaseSensitive(tensor, "steps");
    double top = -(double)INFINITY;
    about->values += ab_json_number(tensor, "nonzero", 0);
    about->rounded += ab_json_number(unscaled, "rounded", 0);
    bool good = exponents && put(exponents, "first", cJSON_Duplicate(ab_json_at(unscaled, "first"), true)) &&
                put(exponents, "counts", cJSON_Duplicate(ab_json_at(unscaled, "counts"), true));
    good = put(tensor, "exponents", exponents) && good;
    good =
        put(steps, "margin_octaves", margins_of(ab_json_at(unscaled, "largest_octaves"), half, &top)) && good;
    good = put(steps, "overflowed", cJSON_Duplicate(ab_json_at(unscaled, "cut"), true)) && good;
    cJSON_ArrayForEach(cut, ab_json_at(unscaled, "cut")) about->cut += cut->valuedouble > 0;
    if (isfinite(top)) good = put(tensor, "max_abs", cJSON_CreateNumber(exp2(top))) && good;
    return good;
}

static void read_scales(const cJSON *cell, ab_advise_unscaled *about) {
    const cJSON *run;
    cJSON_ArrayForEach(run, ab_json_at(cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0);
        if (!cJSON_IsNumber(value)) continue;
        about->least = about->scales++ ? fmin(about->least, value->valuedouble) : value->valuedouble;
        about->largest = fmax(about->largest, value->valuedouble);
    }
}

/* [[1, steps]] */
static bool set_scale(cJSON *cell) {
    cJSON *run = cJSON_CreateArray(), *scales = cJSON_CreateArray();
    return cJSON_AddItemToArray(run, cJSON_CreateNumber(1)) &&
           cJSON_AddItemToArray(run, cJSON_CreateNumber(ab_json_number(cell, "steps_total", 0))) &&
           cJSON_AddItemToArray(scales, run) && put(cell, "scale", scales);
}

ab_status ab_advise_unscale(cJSON *document, ab_advise_unscaled *about) {
    cJSON *cell = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(document, "cells"), 0);
    cJSON *tensors =
              cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(cell, "probes"), "tensors"),
          *tensor;
    const ab_format *half;
    *about = (ab_advise_unscaled){.scales = 0};
    if (!ab_observed_document(document) || cJSON_GetArraySize(ab_json_at(cell, "scale")) < 2) return AB_OK;
    cJSON_ArrayForEach(tensor, tensors) {
        if (!ab_json_at(tensor, "unscaled")) return AB_OK; /* of an earlier version */
    }
    AB_TRY(ab_format_find(ab_json_text(cell, "half_format", ""), &half));
    read_scales(cell, about);
    bool good = set_scale(cell);
    cJSON_ArrayForEach(tensor, tensors) good = unscale_tensor(tensor, half, about) && good;
    return good ? AB_OK : ab_fail(AB_NO_MEMORY, "advise: out of memory");
}

void ab_advise_print_unscaled(const ab_advise_unscaled *about, FILE *out) {
    if (about->scales == 0) return;
    fprintf(out,
            "(the loss scale changed %d times between 2^%g and 2^%g: every step's gradients were divided by "
            "its own, ",
            about->scales - 1, log2(about->least), log2(about->largest));
    if (about->rounded > 0)
        fprintf(out, "%.3g %% of them\n by the nearest power of two", 100 * about->rounded / about->values);
    else
        fputs("which\n is exact", out);
    fputs("; what the casts flushed at the lowest scale is not counted", out);
    if (about->cut > 0)
        fprintf(out, ", and of %.0f columns of steps with\n inf or NaN the largest is a lower bound",
                about->cut);
    fputs(")\n", out);
}

void ab_advise_unscaled_json(const ab_advise_unscaled *about, cJSON *object) {
    if (about->scales == 0) return;
    cJSON *unscaled = cJSON_AddObjectToObject(object, "unscaled");
    cJSON_AddNumberToObject(unscaled, "scales", about->scales);
    cJSON_AddNumberToObject(unscaled, "least", about->least);
    cJSON_AddNumberToObject(unscaled, "largest", about->largest);
    cJSON_AddNumberToObject(unscaled, "rounded_share",
                            about->values > 0 ? about->rounded / about->values : 0);
    cJSON_AddNumberToObject(unscaled, "cut_columns", about->cut);
}
