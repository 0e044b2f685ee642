/* Three outcomes per cell. */
#include "reports/render/outcomes.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
    o->test.outcome = has_status(cell, "ok") ? AB_JUNIT_FAILED : AB_JUNIT_SKIPPED;
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
