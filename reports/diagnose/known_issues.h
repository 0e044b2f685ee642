/* Sixteen frequently reported problems, recognised in a diagnosis and its record. These are not verdicts:
 * whether a cell is sick, and why, is decided in diagnose.h. Some are harmless, and their text says so. */
#ifndef AB_REPORTS_DIAGNOSE_KNOWN_ISSUES_H
#define AB_REPORTS_DIAGNOSE_KNOWN_ISSUES_H

#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

typedef struct ab_known_issue {
    const char *id, *title, *threads; /* id: stable; threads: "owner/name#number, ..." */
    /* True if the problem is present; `text` then says what this record shows. */
    bool (*here)(const ab_diagnosis *diagnosis, char *text, size_t size);
} ab_known_issue;

/* The rows of known_issues.def, in order: i in [0, count). */
int ab_known_issue_count(void);
const ab_known_issue *ab_known_issue_at(int i);

/* The problems present in a diagnosis that has its verdicts: lines of text (none if there are none), and a
 * JSON array. */
void ab_known_issues_print(const ab_diagnosis *diagnosis, FILE *out);
cJSON *ab_known_issue_json(const ab_diagnosis *diagnosis); /* owned by the caller */

AB_END_DECLS

#endif
