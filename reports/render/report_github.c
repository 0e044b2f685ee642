/* Reports problems of a run as GitHub workflow annotations: an error per failed or nondeterministic cell,
 * a warning per cell whose training is not as good as O0's, the document's own warnings, and one notice
 * with the total. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/json.h"
#include "reports/render/junit.h"
#include "reports/render/report.h"

#include <stdlib.h>
#include <string.h>

static bool is_numerics(const ab_outcome *o) { return strcmp(o->test.name, "numerics") == 0; }

static void write_outcome(FILE *out, const ab_outcome *o, const char *id) {
    char title[AB_OUTCOME_TEXT];
    bool is_bad = o->test.outcome == AB_JUNIT_FAILED || o->test.outcome == AB_JUNIT_ERROR;
    if (!is_bad) return;
    ab_text_show(title, sizeof title, "ampbench: %s: %s", id,
                 is_numerics(o) ? "training is not as good as O0's" : o->test.name);
    ab_github_annotation(out, is_numerics(o) ? "warning" : "error", title, o->message);
}

static void write_sum(const cJSON *document, const ab_outcome *outcomes, int count, FILE *out) {
    char subject[AB_PLOT_LABEL], sum[2 * AB_PLOT_LABEL];
    int passed = 0;
    for (int i = 0; i < count; i++)
        passed += is_numerics(&outcomes[i]) && outcomes[i].test.outcome == AB_JUNIT_PASSED;
    ab_text_show(sum, sizeof sum, "%d of %d cells trained as well as O0; %s", passed,
                 count / AB_OUTCOMES_PER_CELL,
                 ab_json_is_true(document, "run.complete") ? "complete" : "the run has not finished");
    ab_github_annotation(out, "notice", ab_plot_subject(document, subject), sum);
}

static ab_status write_github(const cJSON *document, FILE *out, int color) {
    (void)color;
    ab_outcome *outcomes = NULL;
    int count = 0;
    const cJSON *warning;
    AB_TRY(ab_outcomes_create(document, &outcomes, &count));
    for (int i = 0; i < count; i++) write_outcome(out, &outcomes[i], outcomes[i].test.class_name);
    cJSON_ArrayForEach(warning, ab_json_at(document, "warnings")) {
        if (cJSON_IsString(warning)) ab_github_annotation(out, "warning", "ampbench", warning->valuestring);
    }
    write_sum(document, outcomes, count, out);
    free(outcomes);
    return AB_OK;
}

extern const ab_report ab_report_github;
const ab_report ab_report_github = {"github", "annotations of a GitHub workflow", write_github};
