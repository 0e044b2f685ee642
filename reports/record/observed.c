/* Reading of probes' records. */
#include "reports/record/observed.h"

#include "kernels/core/log.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

static ab_observed_newer newer_of;

void ab_observed_set_newer(ab_observed_newer newer) { newer_of = newer; }

static bool is_observed(const cJSON *cell) {
    return strcmp(ab_json_text(cell, "observed_by", "ampbench"), "ampbench") != 0;
}

static bool is_probed(const cJSON *cell) {
    return strcmp(ab_json_text(cell, "observed_by", "ampbench"), "probe") == 0;
}

bool ab_observed_document(const cJSON *document) {
    return cJSON_IsObject(ab_json_at(document, "probe")) ||
           is_observed(cJSON_GetArrayItem(ab_json_at(document, "cells"), 0));
}

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

/* ---- origins --------------------------------------------------------------------------------- */

static cJSON *probes_of_first_cell(const cJSON *document) {
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(ab_json_at(document, "cells"), 0), "probes");
}

/* Steps that were not finite, as far as they were looked at: each event stands for `times` of them. `again`:
 * only those that were run again for that. */
static double steps_of(const cJSON *events, bool again) {
    const cJSON *event;
    double steps = 0;
    cJSON_ArrayForEach(event, events) {
        if (!again || ab_json_is_true(event, "ran_again")) steps += ab_json_number(event, "times", 1);
    }
    return steps;
}

bool ab_observed_place_origins(cJSON *document) {
    const cJSON *events = ab_observed_document(document) ? ab_json_at(document, "probe.about.origin") : NULL;
    cJSON *probes = probes_of_first_cell(document), *origin = NULL;
    if (!cJSON_IsArray(events) || cJSON_GetArraySize(events) == 0 || !cJSON_IsObject(probes) ||
        cJSON_GetObjectItemCaseSensitive(probes, "origin"))
        return false;
    cJSON *copy = cJSON_Duplicate(events, true);
    if (!copy || !(origin = cJSON_AddObjectToObject(probes, "origin"))) {
        cJSON_Delete(copy);
        return false;
    }
    cJSON_AddNumberToObject(origin, "nonfinite_steps", steps_of(events, false));
    cJSON_AddNumberToObject(origin, "steps_run_again", steps_of(events, true));
    cJSON_AddNumberToObject(origin, "events_left_out", 0);
    cJSON_AddItemToObject(origin, "events", copy);
    return true;
}

void ab_observed_remove_origins(cJSON *document) {
    cJSON_DeleteItemFromObjectCaseSensitive(probes_of_first_cell(document), "origin");
}

/* ---- baselines ------------------------------------------------------------------------------- */

const char *ab_observed_baseline_hint(const cJSON *cell) {
    if (is_observed(cell) && !is_probed(cell))
        return "train the same loop in fp32 and with `ampprobe`, and give both records (docs/libampprobe.md)";
    return is_probed(cell)
               ? "train the same loop once in fp32 with the probe and give its record: --baseline FP32.json"
               : "run with an O0 cell, --levels O0,...";
}

const char *ab_observed_level(const cJSON *document) {
    const cJSON *cell = cJSON_GetArrayItem(ab_json_at(document, "cells"), 0);
    return ab_observed_document(document) ? ab_json_text(cell, "level", NULL) : NULL;
}

static const char id_of_given[] = "O0 (--baseline)";

bool ab_observed_is_given(const cJSON *cell) {
    return strcmp(ab_json_text(cell, "id", ""), id_of_given) == 0;
}

/* Replaces a key by a copy of what `from` has there. */
static bool take_over(cJSON *cell, const char *key, const cJSON *from) {
    cJSON *copy = cJSON_Duplicate(ab_json_at(from, key), true);
    return copy && cJSON_ReplaceItemInObjectCaseSensitive(cell, key, copy);
}

static bool set_text(cJSON *cell, const char *key, const char *text) {
    cJSON *value = cJSON_CreateString(text);
    return value && cJSON_ReplaceItemInObjectCaseSensitive(cell, key, value);
}

/* Appends the ops round the baseline's origins that the record's own do not name. */
static bool join_graphs(cJSON *document, const cJSON *fp32) {
    cJSON *mine = cJSON_GetObjectItemCaseSensitive(document, "probe");
    const cJSON *op, *theirs = ab_json_at(fp32, "probe.about.graph.ops");
    if (!cJSON_IsArray(theirs) || !(mine = cJSON_GetObjectItemCaseSensitive(mine, "about"))) return true;
    cJSON *graph = cJSON_GetObjectItemCaseSensitive(mine, "graph");
    if (!graph && !(graph = cJSON_AddObjectToObject(mine, "graph"))) return false;
    cJSON *ops = cJSON_GetObjectItemCaseSensitive(graph, "ops");
    if (!ops && !(ops = cJSON_AddArrayToObject(graph, "ops"))) return false;
    const ab_graph known = {.ops = ops};
    cJSON_ArrayForEach(op, theirs) {
        if (ab_graph_op(&known, ab_json_text(op, "op", ""))) continue;
        cJSON *copy = cJSON_Duplicate(op, true);
        if (copy && cJSON_AddItemToArray(ops, copy)) continue;
        cJSON_Delete(copy);
        return false;
    }
    return true;
}

static ab_status add_as_o0(cJSON *document, const cJSON *fp32, const cJSON *first, const cJSON *other) {
    cJSON *cell = cJSON_Duplicate(other, true), *cells = cJSON_GetObjectItemCaseSensitive(document, "cells");
    const bool good = cell && join_graphs(document, fp32) && set_text(cell, "level", "O0") &&
                      set_text(cell, "id", id_of_given) && take_over(cell, "seed", first) &&
                      take_over(cell, "half_format", first);
    if (good && cJSON_AddItemToArray(cells, cell)) return AB_OK;
    cJSON_Delete(cell);
    return ab_fail(AB_NO_MEMORY, "out of memory for the baseline");
}

ab_status ab_observed_set_baseline(cJSON *document, const cJSON *fp32, const char *path,
                                   const char *baseline_path) {
    const cJSON *first = cJSON_GetArrayItem(ab_json_at(document, "cells"), 0),
                *other = cJSON_GetArrayItem(ab_json_at(fp32, "cells"), 0);
    if (!is_probed(first) || !is_probed(other))
        return ab_fail(AB_NOT_COMPARABLE, "--baseline: expected two records of probes, %s is none",
                       is_probed(first) ? baseline_path : path);
    if (ab_json_number(document, "network.parameters_count", 0) !=
            ab_json_number(fp32, "network.parameters_count", 0) ||
        strcmp(ab_json_text(first, "device", ""), ab_json_text(other, "device", "")) != 0 ||
        strcmp(ab_json_text(first, "model", ""), ab_json_text(other, "model", "")) != 0)
        return ab_fail(
            AB_NOT_COMPARABLE,
            "--baseline: %s and %s are of different models: names, numbers of parameters and devices must "
            "be equal",
            baseline_path, path);
    return add_as_o0(document, fp32, first, other);
}
