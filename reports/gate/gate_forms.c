/* Output formats of the verdict for CI systems: Markdown for a job's summary, JUnit, GitHub annotation
 * lines. Uses the gate document only. */
#include "reports/gate/gate_case.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"
#include "reports/render/junit.h"

#include <stdlib.h>
#include <string.h>

enum { CLEAN = 512, MESSAGE = 1024 };

static bool is(const cJSON *entry, const char *key, const char *value) {
    return strcmp(ab_json_text(entry, key, ""), value) == 0;
}

/* ---- Markdown -------------------------------------------------------------------------------- */

/* Writes one line with escapes, so that Markdown and embedded HTML read it as plain text. */
static void put_plain(FILE *out, const char *text) {
    static const char *const markup[][2] = {{"<", "&lt;"}, {">", "&gt;"}, {"&", "&amp;"}};
    char clean[CLEAN];
    for (const char *c = ab_text_clean(clean, sizeof clean, text); *c; c++) {
        const char *reference = NULL;
        for (size_t i = 0; i < AB_COUNT_OF(markup); i++)
            if (*c == markup[i][0][0]) reference = markup[i][1];
        if (reference) {
            fputs(reference, out);
            continue;
        }
        if (strchr("\\`*_{}[]()#+-!|~", *c)) fputc('\\', out);
        fputc(*c, out);
    }
}

static const char *const heads[][2] = {{"error", "Failed cells"},
                                       {"not_comparable", "Not comparable"},
                                       {"fail", "Regressions"},
                                       {"inconclusive", "Cannot tell"},
                                       {"win", "Gains"}};

static void put_findings(const cJSON *gate, const char *outcome, const char *head, FILE *out) {
    bool any = false;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(gate, "findings")) {
        if (!is(entry, "outcome", outcome)) continue;
        if (!any) ab_print(out, "\n### %s\n\n", head);
        any = true;
        fputs("- ", out);
        if (!is(entry, "cell", "")) {
            fputs("**", out);
            put_plain(out, ab_json_text(entry, "cell", ""));
            fputs("** ", out);
        }
        put_plain(out, ab_json_text(entry, "text", ""));
        if (!is(entry, "action", "")) {
            fputs("  \n  → ", out);
            put_plain(out, ab_json_text(entry, "action", ""));
        }
        fputc('\n', out);
    }
}

static void put_percent(FILE *out, const cJSON *value) {
    if (cJSON_IsNumber(value))
        fprintf(out, "%+.1f %%", value->valuedouble);
    else
        fputs("–", out);
}

static void put_times(const cJSON *gate, FILE *out) {
    const cJSON *entry, *list = ab_json_at(gate, "comparisons");
    if (!list || !list->child) return;
    fputs("\n### Times\n\n", out);
    put_plain(out, ab_json_text(gate, "timing.text", ""));
    fputs("\n\n| cell | change | from | to | rounds | verdict |\n|---|---:|---:|---:|---:|---|\n", out);
    cJSON_ArrayForEach(entry, list) {
        fputs("| ", out);
        put_plain(out, ab_json_text(entry, "candidate_id", ""));
        fputs(" | ", out);
        put_percent(out, ab_json_at(entry, "estimate_percent"));
        fputs(" | ", out);
        put_percent(out, ab_json_at(entry, "ci_low_percent"));
        fputs(" | ", out);
        put_percent(out, ab_json_at(entry, "ci_high_percent"));
        ab_print(out, " | %.0f | %s%s |\n", ab_json_number(entry, "n", 0),
                 is(entry, "metric", "step_time_ns") ? "" : "drift: ", ab_json_text(entry, "verdict", ""));
    }
}

static void put_speedups(const cJSON *gate, FILE *out) {
    char factor[AB_TEXT_NUMBER];
    const cJSON *entry, *list = ab_json_at(gate, "speedups");
    if (!list || !list->child) return;
    fputs("\n### Speed against O0\n\n", out);
    if (ab_json_text(gate, "timing.slow_build", NULL)) {
        put_plain(out, ab_json_text(gate, "timing.slow_build", ""));
        fputs("\n\n", out);
    }
    fputs("| cell | samples/s |\n|---|---|\n", out);
    cJSON_ArrayForEach(entry, list) {
        const cJSON *ratio = ab_json_at(entry, "ratio");
        fputs("| ", out);
        put_plain(out, ab_json_text(entry, "cell", ""));
        fputs(" | ", out);
        if (cJSON_IsNumber(ratio))
            fputs(ab_text_factor(factor, ratio->valuedouble), out);
        else
            put_plain(out, ab_json_text(entry, "ratio_reason", "void"));
        fputs(" |\n", out);
    }
}

static void put_causes(const cJSON *gate, FILE *out) {
    const char *head = ab_gate_causes_head(gate);
    const cJSON *cause;
    if (!head) return;
    fputc('\n', out);
    put_plain(out, head);
    fputs("\n\n", out);
    cJSON_ArrayForEach(cause, ab_json_at(gate, "probable_causes")) {
        fputs("- ", out);
        put_plain(out, ab_json_text(cause, "text", ""));
        fputc('\n', out);
    }
}

void ab_gate_markdown(const cJSON *gate, FILE *out) {
    ab_print(out, "## ampbench gate: %s\n\n", ab_json_text(gate, "gate.verdict", "?"));
    put_plain(out, ab_json_text(gate, "new.name", "?"));
    if (strcmp(ab_json_text(gate, "gate.verdict", ""), "NO_BASELINE") == 0) {
        fputs(": no baseline: nothing compared\n", out);
        return;
    }
    fputs(" against ", out);
    put_plain(out, ab_json_text(gate, "base.name", "?"));
    fputc('\n', out);
    put_causes(gate, out);
    for (size_t i = 0; i < AB_COUNT_OF(heads); i++) put_findings(gate, heads[i][0], heads[i][1], out);
    put_times(gate, out);
    put_speedups(gate, out);
}

/* ---- JUnit ----------------------------------------------------------------------------------- */

static const char *const lanes[] = {"comparable", "cells", "numerics", "work", "time", "drift"};

typedef struct suite {
    ab_junit_case *test;
    char (*message)[MESSAGE];
    int count, room;
} suite;

static ab_junit_outcome outcome_of(const cJSON *finding) {
    if (is(finding, "outcome", "error")) return AB_JUNIT_ERROR;
    if (is(finding, "outcome", "fail") || is(finding, "outcome", "not_comparable")) return AB_JUNIT_FAILED;
    return is(finding, "outcome", "inconclusive") ? AB_JUNIT_SKIPPED : AB_JUNIT_PASSED;
}

/* Returns the case of a cell and lane, creating it if needed. */
static int case_of(suite *s, const char *cell, const char *lane) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->test[i].class_name, cell) == 0 && strcmp(s->test[i].name, lane) == 0) return i;
    s->test[s->count] = (ab_junit_case){cell, lane, s->message[s->count], AB_JUNIT_PASSED, -1};
    return s->count++;
}

static void add_finding(suite *s, const cJSON *finding) {
    const char *cell = ab_json_text(finding, "cell", "documents");
    int i = case_of(s, cell, ab_json_text(finding, "lane", ""));
    ab_junit_outcome outcome = outcome_of(finding);
    if (outcome == AB_JUNIT_PASSED) return;
    ab_text_append(s->message[i], MESSAGE, "%s%s", s->message[i][0] ? "; " : "",
                   ab_json_text(finding, "text", ""));
    bool worse = s->test[i].outcome == AB_JUNIT_PASSED || s->test[i].outcome == AB_JUNIT_SKIPPED;
    if (worse) s->test[i].outcome = outcome;
}

/* A cell that was compared has three cases even if nothing was found. */
static void add_compared(suite *s, const cJSON *comparison) {
    const char *cell = ab_json_text(comparison, "candidate_id", "");
    for (size_t l = 2; l < 5; l++) case_of(s, cell, lanes[l]);
}

ab_status ab_gate_junit(const cJSON *gate, FILE *out) {
    const cJSON *entry, *findings = ab_json_at(gate, "findings"),
                        *comparisons = ab_json_at(gate, "comparisons");
    suite s = {.room = cJSON_GetArraySize(findings) + 3 * cJSON_GetArraySize(comparisons) + 1};
    s.test = calloc((size_t)s.room, sizeof *s.test);
    s.message = calloc((size_t)s.room, sizeof *s.message);
    bool ready = s.test && s.message;
    if (ready) {
        case_of(&s, "documents", lanes[0]);
        cJSON_ArrayForEach(entry, comparisons) add_compared(&s, entry);
        cJSON_ArrayForEach(entry, findings) add_finding(&s, entry);
        ab_junit_write(out, "ampbench gate", s.test, s.count);
    }
    free(s.test);
    free(s.message);
    return ready ? AB_OK : ab_fail(AB_NO_MEMORY, "gate: out of memory");
}

/* ---- GitHub ---------------------------------------------------------------------------------- */

void ab_gate_github(const cJSON *gate, FILE *out) {
    if (strcmp(ab_json_text(gate, "gate.verdict", ""), "NO_BASELINE") == 0)
        fputs("::warning title=ampbench gate::no baseline: nothing compared\n", out);
    static const char *const levels[][2] = {{"error", "error"},
                                            {"not_comparable", "error"},
                                            {"fail", "error"},
                                            {"inconclusive", "warning"},
                                            {"win", "notice"}};
    const cJSON *entry;
    cJSON_ArrayForEach(entry, ab_json_at(gate, "findings")) {
        for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
            char title[MESSAGE], message[MESSAGE];
            const char *action = ab_json_text(entry, "action", "");
            if (!is(entry, "outcome", levels[i][0])) continue;
            ab_text_show(title, sizeof title, "ampbench gate: %s: %s", ab_json_text(entry, "lane", ""),
                         ab_text_brief(ab_json_text(entry, "cell", "the documents"), 300));
            ab_text_show(message, sizeof message, "%s%s%s",
                         ab_text_brief(ab_json_text(entry, "text", ""), 600), *action ? ". " : "",
                         ab_text_brief(action, 300));
            ab_github_annotation(out, levels[i][1], title, message);
        }
    }
    ab_github_annotation(out, "notice", "ampbench gate", ab_json_text(gate, "gate.verdict", "?"));
}
