/* Fuzz targets: the result document in front of every command that reads one. What a command does before and
 * behind the document (its options, its files) is in target_commands.c. */
#include "tests/fuzz/fuzz.h"

#include "bench/nets/net.h"
#include "bench/promote/promote.h"
#include "reports/advise/advise.h"
#include "reports/compare/divergence.h"
#include "reports/compare/equivalence.h"
#include "reports/compare/history.h"
#include "reports/diagnose/diagnose.h"
#include "reports/gate/gate.h"
#include "reports/plot/plots.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/schema.h"
#include "reports/render/report.h"
#include "reports/render/report_sections.h"

#include <stdlib.h>
#include <string.h>

/* ---- documents ------------------------------------------------------------------------------- */

/* As ab_result_check, with one tree of the schema for all inputs. */
static ab_status check_result(const cJSON *document) {
    static cJSON *schema;
    if (!schema) fuzz_insist(ab_schema_result(&schema) == AB_OK);
    AB_TRY(ab_schema_check(schema, document, false, "input.json"));
    return ab_result_check_sums(document, "input.json");
}

/* The next result document of an input, checked and summarised; NULL if there is none that can be used. */
static cJSON *next_result(const char **at, const char *end) {
    cJSON *document = fuzz_next_json(at, end);
    if (document && check_result(document) == AB_OK && ab_result_summarise(document) == AB_OK) {
        fuzz_passed();
        return document;
    }
    cJSON_Delete(document);
    return NULL;
}

static cJSON *only_result(const uint8_t *data, size_t size) {
    const char *at = (const char *)data;
    return next_result(&at, at + size);
}

/* ---- commands that read one ------------------------------------------------------------------ */

void fuzz_report(const uint8_t *data, size_t size) {
    cJSON *document = only_result(data, size);
    const char *note;
    int rendered;
    for (int i = 0; document && i < ab_report_count(); i++)
        for (int color = 0; color < 2; color++) {
            ab_status status = ab_report_at(i)->write(document, fuzz_sink(color), color);
            fuzz_insist(status == AB_OK || ab_error_message()[0]);
        }
    if (document) {
        ab_status status = ab_plots_write(document, "plots", &rendered, &note);
        fuzz_insist(status == AB_OK || ab_error_message()[0]);
        ab_json_print(document, fuzz_sink(false));
    }
    cJSON_Delete(document);
}

void fuzz_diagnose(const uint8_t *data, size_t size) {
    cJSON *document = only_result(data, size), *json = NULL;
    int sick = 0, counted = 0;
    if (document && ab_diagnose_print(document, &ab_thresholds_default, AB_DIAGNOSE_EXPLAINED,
                                      fuzz_sink(false), &sick) == AB_OK) {
        fuzz_insist(ab_diagnose_json(document, &ab_thresholds_default, &json, &counted) == AB_OK &&
                    counted == sick);
        ab_json_print(json, fuzz_sink(false));
        ab_origin_print(document, fuzz_sink(false));
        ab_gradient_reference_print(document, fuzz_sink(false));
    }
    cJSON_Delete(json);
    cJSON_Delete(document);
}

static void advise(const cJSON *document, const char *level, const ab_advise_goal *goal, ab_advise *advice) {
    ab_receipt receipt;
    if (ab_advise_make(document, level, goal, advice) != AB_OK) return;
    cJSON *object = cJSON_CreateObject();
    ab_advise_print(advice, goal, fuzz_sink(false));
    ab_advise_json(advice, goal, object);
    if (ab_receipt_make(document, advice, &receipt) == AB_OK) {
        ab_receipt_print(&receipt, fuzz_sink(false));
        ab_receipt_json(&receipt, object);
    }
    ab_json_print(object, fuzz_sink(false));
    cJSON_Delete(object);
}

void fuzz_advise(const uint8_t *data, size_t size) {
    static ab_advise *advice;
    static const char *const levels[] = {"O1", "O2", "O3"};
    cJSON *document = only_result(data, size);
    ab_advise_goal strict = {
        .flushed_share = 0.001, .flushed_energy = 1e-6, .alpha = 0.01, .horizon = 1e5, .scale = 1024};
    if (!advice) advice = malloc(sizeof *advice);
    fuzz_insist(advice != NULL);
    for (int i = 0; document && i < 3; i++)
        advise(document, levels[i], i == 1 ? &ab_advise_usual : &strict, advice);
    cJSON_Delete(document);
}

/* Ranks the layers of a network by the record, as behind a probed run. */
void fuzz_promote(const uint8_t *data, size_t size) {
    static ab_net *net;
    static ab_promote_item first[AB_DDMIN_ITEMS], item[AB_DDMIN_ITEMS];
    static int count;
    cJSON *document = only_result(data, size);
    if (!net) {
        ab_policy policy;
        ab_plan *plan = NULL;
        const ab_level *level;
        fuzz_insist(ab_net_load("lenet5", &net) == AB_OK && ab_level_find("O3", &level) == AB_OK &&
                    ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &policy) == AB_OK &&
                    ab_plan_create(net, &policy, 64, 1, &plan) == AB_OK);
        ab_promote_layers(plan, first, &count);
        ab_plan_destroy(plan);
    }
    memcpy(item, first, sizeof item);
    if (document) ab_trial_rank(document, net, item, count);
    cJSON_Delete(document);
}

/* ---- commands that read several -------------------------------------------------------------- */

void fuzz_compare(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    cJSON *base = next_result(&at, end), *other = base ? next_result(&at, end) : NULL, *list = NULL;
    const ab_equivalence_options options = ab_equivalence_options_standard();
    if (base && ab_equivalence(base, other, &options, &list) == AB_OK)
        ab_equivalence_print(list, fuzz_sink(false));
    cJSON_Delete(list);
    list = NULL;
    if (base && ab_divergence(base, other, &list) == AB_OK) ab_divergence_print(list, fuzz_sink(false));
    cJSON_Delete(list);
    cJSON_Delete(base);
    cJSON_Delete(other);
}

static void print_gate(const cJSON *gate) {
    FILE *out = fuzz_sink(false);
    ab_gate_print(gate, out);
    ab_gate_markdown(gate, out);
    ab_gate_github(gate, out);
    fuzz_insist(ab_gate_junit(gate, out) == AB_OK);
    ab_json_print(gate, out);
    (void)(ab_gate_status(gate) == AB_OK);
}

static void calibrate(const cJSON *base, const cJSON *other, const ab_gate_options *options) {
    const cJSON *const documents[] = {base, base, other};
    const double effects[] = {0, 0, 0.02};
    cJSON *calibration = NULL;
    if (ab_gate_calibrate(documents, effects, 3, options, &calibration) == AB_OK)
        ab_gate_calibration_print(calibration, fuzz_sink(false));
    cJSON_Delete(calibration);
}

/* Base, other, and perhaps a calibration. The base is its own pinned document. */
void fuzz_gate(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    cJSON *base = next_result(&at, end), *other = base ? next_result(&at, end) : NULL, *gate = NULL;
    cJSON *calibration = other ? fuzz_next_json(&at, end) : NULL;
    ab_gate_options options = ab_gate_options_standard();
    options.calibration = calibration;
    options.calibration_ref = calibration ? "calibration.json" : NULL;
    options.loss_bound = calibration ? 0.1 : 0;
    options.drift_budget = 0.1;
    options.lenient = calibration != NULL;
    const ab_gate_side sides[3] = {
        {base, "a.json"}, {other, "b.json"}, {calibration ? base : NULL, "pinned.json"}};
    if (other && ab_gate_compare(sides[0], sides[1], sides[2], &options, &gate) == AB_OK) print_gate(gate);
    if (other) calibrate(base, other, &options);
    if (calibration) ab_gate_calibration_print(calibration, fuzz_sink(false));
    cJSON_Delete(gate);
    cJSON_Delete(calibration);
    cJSON_Delete(base);
    cJSON_Delete(other);
}

void fuzz_history(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    ab_history *history = NULL;
    cJSON *document, *json = NULL;
    int added, taken = 0;
    fuzz_insist(ab_history_create(&history) == AB_OK);
    while (taken < 8 && at < end && (document = next_result(&at, end))) {
        taken += ab_history_add(history, document, &added) == AB_OK;
        cJSON_Delete(document);
    }
    if (taken > 0 && ab_history_json(history, 0.03, &json) == AB_OK) {
        ab_history_print(json, fuzz_sink(false));
        ab_json_print(json, fuzz_sink(false));
    }
    cJSON_Delete(json);
    ab_history_destroy(history);
}
