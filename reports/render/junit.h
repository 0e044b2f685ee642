/* Test results in two formats that CI systems read: JUnit XML and GitHub annotation lines. Used by the
 * reports and the gate. Texts may contain anything. */
#ifndef AB_REPORTS_RENDER_JUNIT_H
#define AB_REPORTS_RENDER_JUNIT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef enum ab_junit_outcome {
    AB_JUNIT_PASSED,
    AB_JUNIT_FAILED, /* the check failed */
    AB_JUNIT_ERROR,  /* the check could not run: a crash */
    AB_JUNIT_SKIPPED /* undecided or not applicable */
} ab_junit_outcome;

typedef struct ab_junit_case {
    const char *class_name, *name, *message; /* message: "" if passed */
    ab_junit_outcome outcome;
    double seconds; /* negative: unknown */
} ab_junit_case;

/* Writes one suite as a complete document. */
void ab_junit_write(FILE *out, const char *suite, const ab_junit_case *cases, int count);

/* Writes "::error title=TITLE::MESSAGE". `level` is error, warning or notice. */
void ab_github_annotation(FILE *out, const char *level, const char *title, const char *message);

/* Test outcomes of a run's cells for CI systems. Statuses, certificates and determinism are taken from the
 * document; nothing is judged again. */

enum { AB_OUTCOMES_PER_CELL = 3, AB_OUTCOME_TEXT = 1024 };

typedef struct ab_outcome {
    ab_junit_case test;
    char message[AB_OUTCOME_TEXT];
} ab_outcome;

/* Outcomes of a summarised document: per cell "trained", "numerics" (as good as O0, the certificate) and
 * "deterministic". The caller frees *outcomes; texts are borrowed from the document. */
AB_MUST_CHECK ab_status ab_outcomes_create(const cJSON *document, ab_outcome **outcomes, int *count);

AB_END_DECLS

#endif
