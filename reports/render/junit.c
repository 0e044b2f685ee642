/* Writes JUnit's XML (the dialect shared by Jenkins, GitLab and GitHub Actions) and GitHub annotations.
 * Makes no decisions. */
#include "reports/render/junit.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"
#include "reports/render/markup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int count_of(const ab_junit_case *cases, int count, ab_junit_outcome outcome) {
    int found = 0;
    for (int i = 0; i < count; i++) found += cases[i].outcome == outcome;
    return found;
}

static void write_attribute(FILE *out, const char *name, const char *text) {
    fprintf(out, " %s=\"", name);
    ab_markup_text(out, text);
    fputc('"', out);
}

static void write_counts(FILE *out, const ab_junit_case *cases, int count) {
    fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\"", count,
            count_of(cases, count, AB_JUNIT_FAILED), count_of(cases, count, AB_JUNIT_ERROR),
            count_of(cases, count, AB_JUNIT_SKIPPED));
}

static void write_case(FILE *out, const ab_junit_case *c) {
    static const char *const elements[] = {NULL, "failure", "error", "skipped"};
    fputs("    <testcase", out);
    write_attribute(out, "classname", c->class_name);
    write_attribute(out, "name", c->name);
    if (c->seconds >= 0) fprintf(out, " time=\"%.3f\"", c->seconds);
    if (c->outcome == AB_JUNIT_PASSED) {
        fputs("/>\n", out);
        return;
    }
    fprintf(out, ">\n      <%s", elements[c->outcome]);
    write_attribute(out, "message", c->message);
    fputs("/>\n    </testcase>\n", out);
}

void ab_junit_write(FILE *out, const char *suite, const ab_junit_case *cases, int count) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ampbench\"", out);
    write_counts(out, cases, count);
    fputs(">\n  <testsuite", out);
    write_attribute(out, "name", suite);
    write_counts(out, cases, count);
    fputs(">\n", out);
    for (int i = 0; i < count; i++) write_case(out, &cases[i]);
    fputs("  </testsuite>\n</testsuites>\n", out);
}

/* GitHub's escapes: % CR LF everywhere, : and , in properties. Cleaned text has no CR or LF. */
static void write_escaped(FILE *out, const char *text, const char *escaped) {
    char clean[AB_MARKUP_TEXT];
    for (const char *c = ab_text_clean(clean, sizeof clean, text); *c; c++) {
        if (strchr(escaped, *c))
            fprintf(out, "%%%02X", (unsigned)*c);
        else
            fputc(*c, out);
    }
}

void ab_github_annotation(FILE *out, const char *level, const char *title, const char *message) {
    fprintf(out, "::%s title=", level);
    write_escaped(out, title, "%:,");
    fputs("::", out);
    write_escaped(out, message, "%");
    fputc('\n', out);
}

/* Three outcomes per cell. */

static bool has_status(const cJSON *cell, const char *status) {
    return strcmp(ab_json_text(cell, "status", ""), status) == 0;
}

static double seconds_of(const cJSON *cell) {
    double sum = 0;
    const cJSON *process, *step;
    cJSON_ArrayForEach(process, ab_json_at(cell, "processes")) {
        cJSON_ArrayForEach(step, ab_json_at(process, "step_time_ns")) {
            if (cJSON_IsNumber(step)) sum += step->valuedouble * 1e-9;
        }
    }
    return sum;
}

static void judge_training(const cJSON *cell, ab_outcome *o) {
    o->test.seconds = seconds_of(cell);
    if (has_status(cell, "ok")) return;
    o->test.outcome = has_status(cell, "failed") ? AB_JUNIT_ERROR : AB_JUNIT_SKIPPED;
    const char *word = ab_json_text(cell, "status", "?"), *reason = ab_json_text(cell, "reason", "");
    bool reason_has_status = strncmp(reason, word, strlen(word)) == 0; /* "interrupted at step 12" */
    ab_text_show(o->message, sizeof o->message, "%s%s%s", reason_has_status ? "" : word,
                 reason_has_status || !reason[0] ? "" : ": ", reason);
}

static void judge_numerics(const cJSON *cell, ab_outcome *o) {
    const cJSON *reason, *reasons = ab_json_at(cell, "summary.certificate.reasons");
    if (ab_json_is_true(cell, "summary.certificate.passed")) return;
    const bool open =
        cJSON_IsFalse(ab_json_at(cell, "summary.baseline_learned")) && cJSON_GetArraySize(reasons) == 1;
    o->test.outcome = has_status(cell, "ok") && !open ? AB_JUNIT_FAILED : AB_JUNIT_SKIPPED;
    cJSON_ArrayForEach(reason, reasons) {
        if (cJSON_IsString(reason))
            ab_text_append(o->message, sizeof o->message, o->message[0] ? "; %s" : "%s", reason->valuestring);
    }
}

static void judge_determinism(const cJSON *cell, ab_outcome *o) {
    const cJSON *same = ab_json_at(cell, "deterministic");
    if (cJSON_IsTrue(same)) return;
    o->test.outcome = cJSON_IsFalse(same) ? AB_JUNIT_FAILED : AB_JUNIT_SKIPPED;
    ab_text_show(o->message, sizeof o->message, "%s",
                 cJSON_IsFalse(same) ? "the losses differ between rounds"
                                     : "fewer than two rounds to compare");
}

ab_status ab_outcomes_create(const cJSON *document, ab_outcome **outcomes, int *count) {
    static const struct {
        const char *name;
        void (*judge)(const cJSON *cell, ab_outcome *o);
    } judges[AB_OUTCOMES_PER_CELL] = {
        {"trained", judge_training}, {"numerics", judge_numerics}, {"deterministic", judge_determinism}};
    const cJSON *cell, *cells = ab_json_at(document, "cells");
    *count = 0;
    *outcomes = calloc((size_t)cJSON_GetArraySize(cells) * AB_OUTCOMES_PER_CELL + 1, sizeof **outcomes);
    if (!*outcomes) return ab_fail(AB_NO_MEMORY, "out of memory while listing the outcomes");
    cJSON_ArrayForEach(cell, cells) {
        for (int i = 0; i < AB_OUTCOMES_PER_CELL; i++) {
            ab_outcome *o = &(*outcomes)[(*count)++];
            o->test = (ab_junit_case){ab_json_text(cell, "id", "?"), judges[i].name, o->message,
                                      AB_JUNIT_PASSED, -1};
            judges[i].judge(cell, o);
        }
    }
    return AB_OK;
}
