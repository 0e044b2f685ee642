/* The first op that produced a non-finite value, from whichever probe recorded it. */
#include "reports/diagnose/facts/first_nonfinite.h"

#include "kernels/core/text.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A step that the scaler skipped changed nothing. */
static bool was_skipped(const cJSON *cell, double step) {
    const cJSON *skipped;
    cJSON_ArrayForEach(skipped, ab_json_at(cell, "skipped_steps")) {
        if (skipped->valuedouble == step) return true;
    }
    return false;
}

/* Non-finite gradients that reach the weights make the next loss non-finite; these did not reach them. */
static bool next_is_finite(const cJSON *cell, double step) {
    return step >= 0 && cJSON_IsNumber(cJSON_GetArrayItem(ab_json_at(cell, "loss"), (int)step + 1));
}

/* An event of the backward pass that changed nothing. */
static bool is_harmless(const cJSON *cell, const cJSON *event) {
    const double step = ab_json_number(event, "step", -1);
    return strcmp(ab_json_text(event, "pass", ""), "backward") == 0 &&
           (was_skipped(cell, step) || next_is_finite(cell, step));
}

/* `harmless`: such events too. */
static bool from_origin(const cJSON *cell, bool expected, bool harmless, ab_first_nonfinite *first) {
    const cJSON *event;
    int place = 0;
    cJSON_ArrayForEach(event, ab_json_at(cell, "probes.origin.events")) {
        const int here = place++;
        if (ab_json_is_true(event, "expected") != expected) continue;
        if (!harmless && is_harmless(cell, event)) continue;
        *first = (ab_first_nonfinite){.known = true,
                                      .op = ab_json_text(event, "op", ""),
                                      .type = ab_json_text(event, "type", ""),
                                      .pass = ab_json_text(event, "pass", ""),
                                      .by = ab_json_text(event, "by", ""),
                                      .tensor = ab_json_text(event, "tensor", ""),
                                      .cause = ab_json_text(event, "cause.id", ""),
                                      .format = ab_json_text(event, "format", ""),
                                      .place = ab_json_text(event, "place", ""),
                                      .step = (int)ab_json_number(event, "step", 0),
                                      .read_largest = ab_json_number(event, "read_largest", (double)NAN),
                                      .value = ab_json_number(event, "cause.value", (double)NAN)};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/origin/events/%d", here);
        return true;
    }
    return false;
}

static const char *type_of(const cJSON *cell, const char *op) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(cell, "implementations")) {
        if (strcmp(ab_json_text(entry, "op", ""), op) == 0) return ab_json_text(entry, "type", "");
    }
    return "";
}

static bool from_activations(const cJSON *cell, const char *half, ab_first_nonfinite *first) {
    const cJSON *tensor;
    int place = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.activations")) {
        const int here = place++;
        if (!ab_json_is_true(tensor, "cast") ||
            ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0) <= 0)
            continue;
        const char *op = ab_json_text(tensor, "layer", "");
        *first = (ab_first_nonfinite){.known = true,
                                      .op = op,
                                      .type = type_of(cell, op),
                                      .pass = "forward",
                                      .by = "op",
                                      .tensor = "",
                                      .cause = "",
                                      .format = half,
                                      .place = "",
                                      .step = AB_STEP_UNKNOWN,
                                      .read_largest = (double)NAN};
        ab_text_exact(first->pointer, sizeof first->pointer, "/probes/activations/%d/overflowed", here);
        return true;
    }
    return false;
}

static bool from_provenance(const cJSON *cell, ab_first_nonfinite *first) {
    const cJSON *origin = cJSON_GetArrayItem(ab_json_at(cell, "probes.nan_provenance.origins"), 0);
    if (!origin) return false;
    *first = (ab_first_nonfinite){.known = true,
                                  .op = ab_json_text(origin, "op", ""),
                                  .type = ab_json_text(origin, "type", ""),
                                  .pass = ab_json_text(origin, "pass", ""),
                                  .by = "op",
                                  .tensor = "",
                                  .cause = "",
                                  .format = "",
                                  .place = "",
                                  .step = (int)ab_json_number(origin, "first_step", 0),
                                  .read_largest = (double)NAN,
                                  .pointer = "/probes/nan_provenance/origins/0"};
    return true;
}

ab_first_nonfinite ab_first_nonfinite_of(const cJSON *cell, const char *half, bool expected) {
    ab_first_nonfinite first = {.op = "",
                                .type = "",
                                .pass = "",
                                .by = "",
                                .tensor = "",
                                .cause = "",
                                .format = "",
                                .place = "",
                                .read_largest = (double)NAN};
    if (from_origin(cell, false, false, &first) || from_origin(cell, false, true, &first) ||
        (expected && from_origin(cell, true, true, &first)))
        return first;
    if (from_activations(cell, half, &first) || from_provenance(cell, &first)) return first;
    return first;
}

bool ab_first_is_statistics(const ab_first_nonfinite *first) {
    static const char prefix[] = "running_";
    return first->known && strncmp(first->tensor, prefix, sizeof prefix - 1) == 0;
}

bool ab_first_is_beyond_fp32(const ab_first_nonfinite *first) {
    return first->known && strcmp(first->cause, "range_overflow") == 0 && first->value > (double)FLT_MAX;
}

ab_traits ab_first_traits(const ab_facts *facts, const ab_first_nonfinite *first) {
    const ab_graph graph = ab_graph_of(facts->document, ab_json_at(facts->cell, "implementations"));
    return ab_graph_traits_of(&graph, first->op, first->type);
}
