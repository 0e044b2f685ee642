/* Adding up the records of ranks. Which ranks are in a document is kept in its key probe.ranks. */
#include "reports/record/ranks.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/replicas.h"
#include "reports/record/result.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static cJSON *item_at(const cJSON *root, const char *path) {
    return (cJSON *)(uintptr_t)ab_json_at(root, path);
}

static double number_of(const cJSON *object, const char *key) {
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(found) ? found->valuedouble : (double)NAN;
}

static void set_number(cJSON *object, const char *key, double value) {
    cJSON *found = cJSON_GetObjectItemCaseSensitive(object, key);
    if (cJSON_IsNumber(found)) cJSON_SetNumberValue(found, value);
}

/* ---- what one tensor has --------------------------------------------------------------------- */

static const char *const sums[] = {"values_shown", "count",     "zero",   "nan",       "inf",
                                   "nonzero",      "flushed",   "normal", "subnormal", "overflowed",
                                   "infinite",     "saturated", NULL};

/* The larger or smaller of two, or the one that is known. */
static void keep_extreme(cJSON *mine, cJSON *theirs, const char *key, bool largest) {
    const double one = number_of(mine, key), other = number_of(theirs, key);
    if (isnan(other)) return;
    if (isnan(one))
        cJSON_ReplaceItemInObjectCaseSensitive(mine, key, cJSON_CreateNumber(other));
    else
        set_number(mine, key, largest ? fmax(one, other) : fmin(one, other));
}

/* The bounds of a share: of both together it lies between their means by weight. */
static void add_interval(cJSON *mine, const cJSON *theirs, double weight, double other_weight) {
    cJSON *bounds = cJSON_GetObjectItemCaseSensitive(mine, "flushed_interval");
    const cJSON *others = cJSON_GetObjectItemCaseSensitive(theirs, "flushed_interval");
    if (weight + other_weight <= 0) return;
    for (int i = 0; i < 2; i++) {
        cJSON *bound = cJSON_GetArrayItem(bounds, i);
        const cJSON *other = cJSON_GetArrayItem(others, i);
        if (cJSON_IsNumber(bound) && cJSON_IsNumber(other))
            cJSON_SetNumberValue(bound, (bound->valuedouble * weight + other->valuedouble * other_weight) /
                                            (weight + other_weight));
    }
}

static double count_at(const cJSON *exponents, int power) {
    const int index = power - (int)number_of(exponents, "first");
    const cJSON *counts = cJSON_GetObjectItemCaseSensitive(exponents, "counts");
    const cJSON *found = index < 0 ? NULL : cJSON_GetArrayItem(counts, index);
    return cJSON_IsNumber(found) ? found->valuedouble : 0;
}

static int end_of(const cJSON *exponents) {
    return (int)number_of(exponents, "first") +
           cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(exponents, "counts"));
}

static void add_exponents(cJSON *mine, const cJSON *theirs) {
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(mine, "exponents");
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(theirs, "exponents");
    if (!cJSON_IsObject(other)) return;
    if (!cJSON_IsObject(one)) {
        cJSON_ReplaceItemInObjectCaseSensitive(mine, "exponents", cJSON_Duplicate(other, true));
        return;
    }
    const int first = (int)fmin(number_of(one, "first"), number_of(other, "first"));
    const int end = end_of(one) > end_of(other) ? end_of(one) : end_of(other);
    cJSON *both = cJSON_CreateObject(), *counts = cJSON_CreateArray();
    cJSON_AddNumberToObject(both, "first", first);
    for (int power = first; power < end; power++)
        cJSON_AddItemToArray(counts, cJSON_CreateNumber(count_at(one, power) + count_at(other, power)));
    cJSON_AddItemToObject(both, "counts", counts);
    cJSON_ReplaceItemInObjectCaseSensitive(mine, "exponents", both);
}

/* ---- its course over the steps --------------------------------------------------------------- */

static bool same_steps(const cJSON *one, const cJSON *other) {
    return number_of(one, "first") == number_of(other, "first") &&
           number_of(one, "stride") == number_of(other, "stride") &&
           number_of(one, "count") == number_of(other, "count");
}

static void add_column(cJSON *mine, const cJSON *theirs, bool sum) {
    const cJSON *other = theirs ? theirs->child : NULL;
    for (cJSON *value = mine ? mine->child : NULL; value && other; value = value->next, other = other->next) {
        const double joined =
            sum ? value->valuedouble + other->valuedouble : fmin(value->valuedouble, other->valuedouble);
        if (cJSON_IsNumber(value) && cJSON_IsNumber(other)) cJSON_SetNumberValue(value, joined);
    }
}

/* Whether both were looked at in the same steps, so that their courses could be added. */
static bool add_steps(cJSON *mine, const cJSON *theirs) {
    static const char *const columns[] = {"nonzero", "flushed",        "overflowed",
                                          "energy",  "margin_octaves", NULL};
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(mine, "steps");
    const cJSON *other = cJSON_GetObjectItemCaseSensitive(theirs, "steps");
    if (!same_steps(one, other)) return false;
    for (int i = 0; columns[i]; i++)
        add_column(cJSON_GetObjectItemCaseSensitive(one, columns[i]),
                   cJSON_GetObjectItemCaseSensitive(other, columns[i]),
                   strcmp(columns[i], "margin_octaves") != 0);
    return true;
}

static bool add_tensor(cJSON *mine, cJSON *theirs) {
    add_interval(mine, theirs, number_of(mine, "nonzero"), number_of(theirs, "nonzero"));
    for (int i = 0; sums[i]; i++)
        set_number(mine, sums[i], number_of(mine, sums[i]) + number_of(theirs, sums[i]));
    keep_extreme(mine, theirs, "min_abs", false);
    keep_extreme(mine, theirs, "max_abs", true);
    keep_extreme(mine, theirs, "margin_octaves", false);
    add_exponents(mine, theirs);
    cJSON_DeleteItemFromObjectCaseSensitive(mine, "periods"); /* of the first rank alone */
    return add_steps(mine, theirs);
}

static cJSON *same_tensor(const cJSON *list, const cJSON *tensor) {
    cJSON *found;
    cJSON_ArrayForEach(
        found, list) if (strcmp(ab_json_text(found, "name", ""), ab_json_text(tensor, "name", "")) == 0 &&
                         strcmp(ab_json_text(found, "kind", ""), ab_json_text(tensor, "kind", "")) ==
                             0) return found;
    return NULL;
}

/* All lists of tensors of a cell; a tensor that only one rank has stays as it is. */
static bool add_tensors(const cJSON *probes, const cJSON *others) {
    static const char *const lists[] = {"tensors", "unscaled_gradients", "activations",
                                        "weights", "optimizer_state",    NULL};
    bool courses = true;
    for (int i = 0; lists[i]; i++) {
        cJSON *list = cJSON_GetObjectItemCaseSensitive(probes, lists[i]), *tensor;
        const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(others, lists[i]);
        cJSON_ArrayForEach(tensor, theirs) {
            cJSON *mine = same_tensor(list, tensor);
            if (mine)
                courses = add_tensor(mine, tensor) && courses;
            else
                cJSON_AddItemToArray(list, cJSON_Duplicate(tensor, true));
        }
    }
    return courses;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void mean_losses(const cJSON *cell, const cJSON *other, int merged) {
    cJSON *loss = cJSON_GetObjectItemCaseSensitive(cell, "loss");
    const cJSON *theirs = cJSON_GetObjectItemCaseSensitive(other, "loss");
    theirs = theirs ? theirs->child : NULL;
    for (loss = loss ? loss->child : NULL; loss && theirs; loss = loss->next, theirs = theirs->next)
        if (cJSON_IsNumber(loss) && cJSON_IsNumber(theirs))
            cJSON_SetNumberValue(loss, loss->valuedouble +
                                           (theirs->valuedouble - loss->valuedouble) / (merged + 1));
}

static void warn(cJSON *document, const char *path, const char *text) {
    cJSON *warnings = cJSON_GetObjectItemCaseSensitive(document, "warnings");
    char line[512];
    ab_text_show(line, sizeof line, "%s: %s", path, text);
    if (cJSON_IsArray(warnings)) cJSON_AddItemToArray(warnings, cJSON_CreateString(line));
}

static void add_cell(cJSON *document, int merged, const cJSON *cell, const cJSON *other, const char *path) {
    if (!cJSON_Compare(ab_json_at(cell, "scale"), ab_json_at(other, "scale"), true) ||
        !cJSON_Compare(ab_json_at(cell, "skipped_steps"), ab_json_at(other, "skipped_steps"), true))
        warn(document, path, "this rank had other scales or skipped other steps than the first");
    mean_losses(cell, other, merged);
    if (!add_tensors(ab_json_at(cell, "probes"), ab_json_at(other, "probes")))
        warn(document, path, "this rank was looked at in other steps; courses over steps are the first's");
}

/* ---- the document ---------------------------------------------------------------------------- */

static bool has_rank(const cJSON *ranks, double rank) {
    const cJSON *one;
    cJSON_ArrayForEach(one, ranks) if (one->valuedouble == rank) return true;
    return false;
}

static ab_status check_same_run(const cJSON *document, const char *path, const cJSON *other,
                                const char *other_path) {
    const cJSON *const both[] = {document, other};
    const char *const paths[] = {path, other_path};
    for (int i = 0; i < 2; i++)
        if (ab_json_number(both[i], "probe.world", 1) < 2)
            return ab_fail(AB_INPUT, "%s: expected the record of one rank of a distributed run", paths[i]);
    if (ab_json_number(document, "probe.world", 1) != ab_json_number(other, "probe.world", 1) ||
        strcmp(ab_json_text(document, "network.name", ""), ab_json_text(other, "network.name", "")) != 0 ||
        ab_json_number(document, "network.parameters_count", 0) !=
            ab_json_number(other, "network.parameters_count", 0))
        return ab_fail(AB_INPUT, "%s: expected another rank of the run of '%s'", other_path, path);
    return AB_OK;
}

ab_status ab_result_add_rank(cJSON *document, const char *path, int merged, const cJSON *other,
                             const char *other_path) {
    AB_TRY(check_same_run(document, path, other, other_path));
    cJSON *probe = item_at(document, "probe"), *ranks = item_at(document, "probe.ranks");
    if (!ranks) {
        ranks = cJSON_AddArrayToObject(probe, "ranks");
        cJSON_AddItemToArray(ranks, cJSON_CreateNumber(number_of(probe, "rank")));
    }
    const double rank = ab_json_number(other, "probe.rank", 0);
    if (has_rank(ranks, rank)) return ab_fail(AB_INPUT, "%s: rank %.0f is there already", other_path, rank);
    cJSON_AddItemToArray(ranks, cJSON_CreateNumber(rank));
    add_cell(document, merged, cJSON_GetArrayItem(item_at(document, "cells"), 0),
             cJSON_GetArrayItem(ab_json_at(other, "cells"), 0), other_path);
    return AB_OK;
}

static ab_status place_replicas(cJSON *const *documents, int count) {
    cJSON *replicas = NULL, *cell = cJSON_GetArrayItem(ab_json_at(documents[0], "cells"), 0);
    AB_TRY(ab_replicas_of_records((const cJSON *const *)documents, count, &replicas));
    if (replicas && cell)
        cJSON_AddItemToObject(cell, "replicas", replicas);
    else
        cJSON_Delete(replicas);
    return AB_OK;
}

ab_status ab_result_load_ranks(const char *const *paths, int count, cJSON **document) {
    cJSON **documents = calloc((size_t)count, sizeof *documents);
    ab_status status;
    *document = NULL;
    if (!documents) return ab_fail(AB_NO_MEMORY, "records of ranks: out of memory");
    for (int i = 0; i < count; i++) AB_TRY_GOTO(ab_result_load(paths[i], &documents[i]));
    for (int i = 1; i < count; i++)
        AB_TRY_GOTO(ab_result_add_rank(documents[0], paths[0], i, documents[i], paths[i]));
    AB_TRY_GOTO(place_replicas(documents, count));
out:
    *document = documents[0];
    for (int i = 1; i < count; i++) cJSON_Delete(documents[i]);
    free(documents);
    return status;
}
