/* Test outcomes of a run's cells for CI systems. Statuses, certificates and determinism are taken from the
 * document; nothing is judged again. */
#ifndef AB_REPORTS_RENDER_OUTCOMES_H
#define AB_REPORTS_RENDER_OUTCOMES_H

#include "reports/render/junit.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

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
