/* A run as a JUnit test suite: did every cell train, was it as good as O0, were the bits equal in every
 * round? */
#include "reports/plot/plot.h"
#include "reports/render/junit.h"
#include "reports/render/report.h"

#include <stdlib.h>

static ab_status write_junit(const cJSON *document, FILE *out, int color) {
    (void)color;
    char subject[AB_PLOT_LABEL];
    ab_outcome *outcomes = NULL;
    ab_junit_case *cases = NULL;
    int count = 0;
    ab_status status;
    AB_TRY_GOTO(ab_outcomes_create(document, &outcomes, &count));
    cases = calloc((size_t)count + 1, sizeof *cases);
    if (!cases) {
        status = ab_fail(AB_NO_MEMORY, "out of memory while writing the outcomes");
        goto out;
    }
    for (int i = 0; i < count; i++) cases[i] = outcomes[i].test;
    ab_junit_write(out, ab_plot_subject(document, subject), cases, count);
out:
    free(cases);
    free(outcomes);
    return status;
}

extern const ab_report ab_report_junit;
const ab_report ab_report_junit = {"junit", "JUnit XML: three tests a cell", write_junit};
