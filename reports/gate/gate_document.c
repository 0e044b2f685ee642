/* The gate document: all lanes in turn, and the verdict. Measures nothing and reads no clock. */
#include "reports/gate/gate.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/build.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 400, CLEAN = 512, SHOWN = 4 };

ab_gate_options ab_gate_options_standard(void) {
    return (ab_gate_options){.time_tolerance = 0.03, .guard = 0.01, .drift_budget = 0.05};
}

static bool is(const cJSON *entry, const char *key, const char *value) {
    return strcmp(ab_json_text(entry, key, ""), value) == 0;
}

/* ---- verdict --------------------------------------------------------------------------------- */

/* The first row that applies decides. */
static const struct verdict_row {
    const char *verdict, *outcome, *lane; /* lane NULL: any except numerics */
    ab_status status;
} verdicts[] = {{"ERROR", "error", NULL, AB_INTERNAL},
                {"NOT_COMPARABLE", "not_comparable", NULL, AB_NOT_COMPARABLE},
                {"FAIL", "fail", "numerics", AB_NUMERICS},
                {"FAIL", "fail", NULL, AB_REGRESSION},
                {"INCONCLUSIVE", "inconclusive", NULL, AB_INCONCLUSIVE}};

static const char no_baseline[] = "NO_BASELINE";

static bool applies(const struct verdict_row *row, const cJSON *entry) {
    bool numerics = is(entry, "lane", "numerics");
    return is(entry, "outcome", row->outcome) && (row->lane ? numerics : !numerics);
}

static void add_verdict(cJSON *gate, const ab_gate_case *c) {
    const cJSON *entry;
    cJSON *verdict = cJSON_AddObjectToObject(gate, "gate"), *reasons = cJSON_CreateArray();
    const struct verdict_row *worst = NULL;
    bool refresh = false;
    for (size_t i = 0; i < AB_COUNT_OF(verdicts) && !worst; i++) {
        cJSON_ArrayForEach(entry, c->findings) {
            if (!applies(&verdicts[i], entry)) continue;
            char text[2 * TEXT];
            const char *cell = ab_json_text(entry, "cell", "");
            ab_text_show(text, sizeof text, "%s%s%s", cell, *cell ? ": " : "",
                         ab_json_text(entry, "text", ""));
            cJSON_AddItemToArray(reasons, cJSON_CreateString(text));
            worst = &verdicts[i];
        }
    }
    cJSON_ArrayForEach(entry, c->findings) refresh = refresh || is(entry, "outcome", "win");
    cJSON_AddStringToObject(verdict, "verdict", worst ? worst->verdict : "PASS");
    cJSON_AddNumberToObject(verdict, "exit_status", worst ? ab_status_exit(worst->status) : 0);
    cJSON_AddItemToObject(verdict, "reasons", reasons);
    cJSON_AddBoolToObject(verdict, "refresh_baseline", refresh && !worst);
    if (c->options->calibration_ref)
        cJSON_AddStringToObject(verdict, "calibration_ref", c->options->calibration_ref);
    else
        cJSON_AddNullToObject(verdict, "calibration_ref");
    cJSON_AddItemToObject(verdict, "calibration",
                          ab_gate_copy_or_null(ab_json_at(c->options->calibration, "summary")));
}

ab_status ab_gate_status(const cJSON *gate) {
    const char *verdict = ab_json_text(gate, "gate.verdict", "");
    double exit_status = ab_json_number(gate, "gate.exit_status", 0);
    const char *reason = cJSON_GetStringValue(cJSON_GetArrayItem(ab_json_at(gate, "gate.reasons"), 0));
    int more = cJSON_GetArraySize(ab_json_at(gate, "gate.reasons")) - 1;
    char clean[CLEAN], rest[32] = "";
    if (more > 0) ab_text_show(rest, sizeof rest, " (and %d more)", more);
    if (strcmp(verdict, no_baseline) == 0 && exit_status > 0)
        return ab_fail(AB_NOT_COMPARABLE, "gate: %s (--no-baseline pass accepts that)",
                       ab_text_clean(clean, sizeof clean, reason ? reason : ""));
    for (size_t i = 0; i < AB_COUNT_OF(verdicts); i++) {
        if (strcmp(verdict, verdicts[i].verdict) != 0 || ab_status_exit(verdicts[i].status) != exit_status)
            continue;
        return ab_fail(verdicts[i].status, "gate: %s: %s%s", ab_status_text(verdicts[i].status),
                       ab_text_clean(clean, sizeof clean, reason ? reason : ""), rest);
    }
    return AB_OK;
}

/* ---- the document ---------------------------------------------------------------------------- */

static cJSON *side_part(ab_gate_side side) {
    static const char *const paths[][2] = {{"run_id", "run.id"},
                                           {"started_utc", "run.started_utc"},
                                           {"version", "generator.version"},
                                           {"git_sha", "generator.git_sha"},
                                           {"git_dirty", "generator.git_dirty"},
                                           {"compiler", "generator.compiler"},
                                           {"cpu_model", "environment.cpu_model"},
                                           {"comparability_key", "comparability_key"}};
    cJSON *part = cJSON_CreateObject();
    if (!side.document) {
        cJSON_Delete(part);
        return cJSON_CreateNull();
    }
    cJSON_AddStringToObject(part, "name", side.name);
    for (size_t i = 0; i < AB_COUNT_OF(paths); i++)
        cJSON_AddItemToObject(part, paths[i][0],
                              ab_gate_copy_or_null(ab_json_at(side.document, paths[i][1])));
    return part;
}

static cJSON *rule_part(const ab_gate_case *c) {
    const ab_gate_options *o = c->options;
    double fixed = ab_json_number(c->other.document, "design.session.fixed_rounds", 0);
    ab_gate_rule rule = ab_gate_rule_standard((int)fixed);
    cJSON *part = cJSON_CreateObject();
    cJSON_AddItemToObject(part, "looks", cJSON_CreateIntArray(rule.look, rule.looks));
    cJSON_AddItemToObject(part, "alphas", cJSON_CreateDoubleArray(rule.alpha, rule.looks));
    cJSON_AddNumberToObject(part, "time_tolerance_percent", 100 * o->time_tolerance);
    cJSON_AddNumberToObject(part, "memory_tolerance_percent", 100 * o->memory_tolerance);
    cJSON_AddNumberToObject(part, "guard_percent", 100 * o->guard);
    cJSON_AddNumberToObject(part, "loss_bound", o->loss_bound);
    cJSON_AddNumberToObject(part, "drift_budget_percent", 100 * o->drift_budget);
    return part;
}

static cJSON *timing_part(const ab_gate_case *c) {
    cJSON *part = cJSON_CreateObject();
    cJSON_AddBoolToObject(part, "binding", c->session);
    cJSON_AddItemToObject(part, "session",
                          ab_gate_copy_or_null(ab_json_at(c->other.document, "design.session.id")));
    cJSON_AddNumberToObject(part, "rounds",
                            c->session ? ab_json_number(c->other.document, "design.session.rounds", 0) : 0);
    char warning[AB_BUILD_TEXT], text[TEXT];
    const char *slow = ab_build_warning(ab_json_at(c->other.document, "generator"), warning);
    ab_text_show(text, sizeof text, "%s%s%s",
                 c->session ? "both sides were measured in turns on this machine: times are judged"
                            : "the sides were not measured in turns: times are advisory, the rest is binding",
                 slow ? "; " : "", slow ? slow : "");
    cJSON_AddStringToObject(part, "text", text);
    if (slow) cJSON_AddStringToObject(part, "slow_build", slow);
    return part;
}

static void compare_cells(ab_gate_case *c) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(c->other.document, "cells")) {
        const cJSON *base = ab_gate_partner(cell, &c->other_cells, &c->base_cells);
        if (base && !ab_gate_cells_agree(base, cell)) continue;
        ab_gate_numerics(c, base, cell);
        if (base) ab_gate_work(c, base, cell);
    }
}

static bool comparable(const ab_gate_case *c) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, c->findings) {
        if (is(entry, "lane", "comparable") && is(entry, "outcome", "not_comparable")) return false;
    }
    return true;
}

static ab_status index_cells(ab_gate_case *c) {
    AB_TRY(ab_cells_create(c->base.document, &c->base_cells));
    AB_TRY(ab_cells_create(c->other.document, &c->other_cells));
    AB_TRY(ab_cells_create(c->pinned.document, &c->pinned_cells));
    c->unsound = calloc((size_t)c->other_cells.count + 1, sizeof *c->unsound);
    return c->unsound ? AB_OK : ab_fail(AB_NO_MEMORY, "gate: out of memory");
}

static void free_index(ab_gate_case *c) {
    ab_cells_free(&c->base_cells);
    ab_cells_free(&c->other_cells);
    ab_cells_free(&c->pinned_cells);
    free(c->unsound);
    c->unsound = NULL;
}

static ab_status compare_all(ab_gate_case *c) {
    AB_TRY(index_cells(c));
    ab_gate_match_documents(c, c->base, c->other, c->session);
    ab_gate_match_cells(c);
    if (!comparable(c)) return AB_OK; /* numbers measured under other conditions are not evidence */
    compare_cells(c);
    ab_gate_speedups(c);
    AB_TRY(ab_gate_times(c));
    return ab_gate_drift(c);
}

ab_status ab_gate_compare(ab_gate_side base, ab_gate_side other, ab_gate_side pinned,
                          const ab_gate_options *options, cJSON **gate) {
    cJSON *document = cJSON_CreateObject();
    ab_gate_case c = {.options = options,
                      .base = base,
                      .other = other,
                      .pinned = pinned,
                      .session = ab_gate_same_session(base.document, other.document),
                      .differences = cJSON_CreateArray(),
                      .findings = cJSON_CreateArray(),
                      .comparisons = cJSON_CreateArray(),
                      .speedups = cJSON_CreateArray()};
    ab_status status = compare_all(&c);
    cJSON_AddStringToObject(document, "schema", "ampbench-gate");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddItemToObject(document, "base", side_part(base));
    cJSON_AddItemToObject(document, "new", side_part(other));
    cJSON_AddItemToObject(document, "pinned", side_part(pinned));
    cJSON_AddItemToObject(document, "rule", rule_part(&c));
    cJSON_AddItemToObject(document, "timing", timing_part(&c));
    cJSON_AddItemToObject(document, "probable_causes", ab_gate_causes(&c));
    cJSON_AddItemToObject(document, "differences", c.differences);
    cJSON_AddItemToObject(document, "findings", c.findings);
    cJSON_AddItemToObject(document, "comparisons", c.comparisons);
    cJSON_AddItemToObject(document, "speedups", c.speedups);
    add_verdict(document, &c);
    free_index(&c);
    *gate = document;
    if (status == AB_OK) return AB_OK;
    cJSON_Delete(document);
    *gate = NULL;
    return status;
}

cJSON *ab_gate_no_baseline(ab_gate_side base, ab_gate_side other, const ab_gate_options *options,
                           bool accepted) {
    static const char *const lists[] = {"differences", "findings", "comparisons", "speedups"};
    const ab_gate_case c = {.options = options, .base = base, .other = other};
    char reason[TEXT];
    cJSON *document = cJSON_CreateObject();
    cJSON_AddStringToObject(document, "schema", "ampbench-gate");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddNullToObject(document, "base");
    cJSON_AddItemToObject(document, "new", side_part(other));
    cJSON_AddNullToObject(document, "pinned");
    cJSON_AddItemToObject(document, "rule", rule_part(&c));
    cJSON_AddItemToObject(document, "timing", timing_part(&c));
    for (size_t i = 0; i < AB_COUNT_OF(lists); i++) cJSON_AddArrayToObject(document, lists[i]);
    cJSON *verdict = cJSON_AddObjectToObject(document, "gate");
    cJSON_AddStringToObject(verdict, "verdict", no_baseline);
    cJSON_AddNumberToObject(verdict, "exit_status", accepted ? 0 : ab_status_exit(AB_NOT_COMPARABLE));
    ab_text_show(reason, sizeof reason, "no baseline: %s does not exist: nothing compared",
                 ab_text_brief(base.name, 200));
    cJSON *reasons = cJSON_AddArrayToObject(verdict, "reasons");
    cJSON_AddItemToArray(reasons, cJSON_CreateString(reason));
    cJSON_AddBoolToObject(verdict, "refresh_baseline", false);
    cJSON_AddNullToObject(verdict, "calibration_ref");
    cJSON_AddNullToObject(verdict, "calibration");
    return document;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *clean(char text[CLEAN], const char *source) { return ab_text_clean(text, CLEAN, source); }

/* Findings of one cell and lane are consecutive; only the first few are printed. */
static void print_findings(const cJSON *gate, const char *outcome, const char *head, FILE *out) {
    char id[CLEAN], text[CLEAN];
    const char *last_cell = "", *last_lane = "", *last_action = "";
    int run = 0, left_out = 0;
    bool any = false;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(gate, "findings")) {
        const char *cell = ab_json_text(entry, "cell", ""), *lane = ab_json_text(entry, "lane", ""),
                   *action = ab_json_text(entry, "action", "");
        if (!is(entry, "outcome", outcome)) continue;
        if (!any) ab_print(out, "\n%s\n", head);
        any = true;
        run = strcmp(cell, last_cell) == 0 && strcmp(lane, last_lane) == 0 ? run + 1 : 1;
        last_cell = cell, last_lane = lane;
        left_out += run > SHOWN;
        if (run > SHOWN) continue;
        clean(id, cell);
        ab_print(out, "  %-10s %s%s%s\n", lane, id, *id ? ": " : "",
                 clean(text, ab_json_text(entry, "text", "")));
        if (*action && strcmp(action, last_action) != 0) ab_print(out, "             -> %s\n", action);
        last_action = action;
    }
    if (left_out) fprintf(out, "  ... and %d more like these (--json has them all)\n", left_out);
}

static void percent_text(char text[32], const cJSON *value) {
    if (cJSON_IsNumber(value))
        ab_text_show(text, 32, "%+.1f %%", value->valuedouble);
    else
        ab_text_show(text, 32, "-");
}

static void print_comparisons(const cJSON *gate, FILE *out) {
    const cJSON *entry, *list = ab_json_at(gate, "comparisons");
    if (!list || !list->child) return;
    ab_print(out, "\ntimes: %s\n", ab_json_text(gate, "timing.text", ""));
    ab_print(out, "  %-40s %9s  %19s %7s %9s  %s\n", "cell", "change", "interval", "rounds", "p (Holm)",
             "verdict");
    cJSON_ArrayForEach(entry, list) {
        char id[CLEAN], change[32], low[32], high[32], interval[72], p[32] = "-";
        clean(id, ab_json_text(entry, "candidate_id", ""));
        ab_text_elide(id, 40);
        percent_text(change, ab_json_at(entry, "estimate_percent"));
        percent_text(low, ab_json_at(entry, "ci_low_percent"));
        percent_text(high, ab_json_at(entry, "ci_high_percent"));
        ab_text_show(interval, sizeof interval, "%s to %s", low, high);
        if (ab_json_at(entry, "p_holm"))
            ab_text_show(p, sizeof p, "%.3g", ab_json_number(entry, "p_holm", 0));
        ab_print(out, "  %-40s %9s  %19s %7.0f %9s  %s%s\n", id, change, interval,
                 ab_json_number(entry, "n", 0), p,
                 is(entry, "metric", "step_time_ns") ? "" : "drift: ", ab_json_text(entry, "verdict", ""));
    }
}

static void print_speedups(const cJSON *gate, FILE *out) {
    const cJSON *entry, *list = ab_json_at(gate, "speedups");
    if (!list || !list->child) return;
    const char *slow = ab_json_text(gate, "timing.slow_build", NULL);
    ab_print(out, "\nspeed against O0 in the new document%s%s\n", slow ? "; " : "", slow ? slow : "");
    cJSON_ArrayForEach(entry, list) {
        char id[CLEAN], why[CLEAN], mode[CLEAN], ratio[AB_TEXT_NUMBER];
        clean(id, ab_json_text(entry, "cell", ""));
        ab_text_elide(id, 40);
        clean(mode, ab_json_text(entry, "o0_math_mode", ""));
        if (cJSON_IsNumber(ab_json_at(entry, "ratio")))
            ab_print(out, "  %-40s %s of O0 in %s\n", id,
                     ab_text_factor(ratio, ab_json_number(entry, "ratio", 0)), mode);
        else
            ab_print(out, "  %-40s void: %s\n", id, clean(why, ab_json_text(entry, "ratio_reason", "")));
    }
}

static void print_calibration(const cJSON *gate, FILE *out) {
    const cJSON *summary = ab_json_at(gate, "gate.calibration");
    char text[CLEAN];
    if (cJSON_IsObject(summary))
        ab_print(out, "\nthis gate on such a machine: %s\n", clean(text, ab_json_text(summary, "text", "")));
    else if (ab_json_is_true(gate, "timing.binding"))
        fputs("\nnot calibrated on this machine: `ampbench gate --selftest` measures how often it fires\n",
              out);
}

void ab_gate_print(const cJSON *gate, FILE *out) {
    char base[CLEAN], other[CLEAN];
    clean(base, ab_json_text(gate, "base.name", "?"));
    clean(other, ab_json_text(gate, "new.name", "?"));
    if (is(ab_json_at(gate, "gate"), "verdict", no_baseline)) {
        ab_print(out, "%s: %s: no baseline: nothing compared\n", no_baseline, other);
        return;
    }
    ab_print(out, "%s: %s against %s\n", ab_json_text(gate, "gate.verdict", "?"), other, base);
    ab_gate_causes_print(gate, out);
    print_findings(gate, "error", "failed cells", out);
    print_findings(gate, "not_comparable", "not comparable", out);
    print_findings(gate, "fail", "regressions", out);
    print_findings(gate, "inconclusive", "cannot tell", out);
    print_findings(gate, "win", "gains", out);
    print_comparisons(gate, out);
    print_speedups(gate, out);
    print_findings(gate, "note", "notes", out);
    print_calibration(gate, out);
}
