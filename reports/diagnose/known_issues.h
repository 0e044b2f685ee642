/* Fifteen problems that people report again and again, recognised by name in a diagnosis and its record. A
 * name beside a verdict, not a verdict: whether a cell is sick, and why, is diagnose.h's matter; some of
 * these are harmless and say so. */
#ifndef AB_REPORTS_DIAGNOSE_KNOWN_ISSUES_H
#define AB_REPORTS_DIAGNOSE_KNOWN_ISSUES_H

#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

typedef struct ab_known_issue {
    const char *id, *title, *threads; /* id: stable; threads: "owner/name#number, ..." */
    /* True if it is here; `text`: what this record says of it, for people. */
    bool (*here)(const ab_diagnosis *diagnosis, char *text, size_t size);
} ab_known_issue;

/* The rows of known_issues.def, in order: i in [0, count). */
int ab_known_issue_count(void);
const ab_known_issue *ab_known_issue_at(int i);

/* Those of a diagnosis whose verdicts are there: lines for people (nothing where there is none), and an
 * array. */
void ab_recurrent_print(const ab_diagnosis *diagnosis, FILE *out);
cJSON *ab_known_issue_json(const ab_diagnosis *diagnosis); /* owned by the caller */

AB_END_DECLS

#endif
