/* Test results in the two forms that CI systems read: JUnit's XML and GitHub's annotation lines. For reports
 * and for the gate; texts may be anything. */
#ifndef AB_REPORTS_RENDER_JUNIT_H
#define AB_REPORTS_RENDER_JUNIT_H

#include "kernels/core/status.h"

#include <stdio.h>

AB_BEGIN_DECLS

typedef enum ab_junit_outcome {
    AB_JUNIT_PASSED,
    AB_JUNIT_FAILED, /* what was checked is not so */
    AB_JUNIT_ERROR,  /* it could not be checked: a crash */
    AB_JUNIT_SKIPPED /* it could not be decided, or does not apply */
} ab_junit_outcome;

typedef struct ab_junit_case {
    const char *class_name, *name, *message; /* message: "" when it passed */
    ab_junit_outcome outcome;
    double seconds; /* negative: not known */
} ab_junit_case;

/* One suite as a whole document. */
void ab_junit_write(FILE *out, const char *suite, const ab_junit_case *cases, int count);

/* "::error title=TITLE::MESSAGE". `level` is error, warning or notice. */
void ab_github_annotation(FILE *out, const char *level, const char *title, const char *message);

AB_END_DECLS

#endif
