/* Reports: a document as text, in several forms (reports.def). */
#ifndef AB_REPORTS_RENDER_REPORT_H
#define AB_REPORTS_RENDER_REPORT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* A report renders a document as text. Each has one file and one line in reports.def. */
typedef struct ab_report {
    const char *name, *text;
    ab_status (*write)(const cJSON *document, FILE *out, int color);
} ab_report;

/* Number of rows of reports.def, and row i in [0, count), in order. ab_report_find: AB_USAGE with the
 * nearest name if `name` is unknown. */
int ab_report_count(void);
const ab_report *ab_report_at(int i);
AB_MUST_CHECK ab_status ab_report_find(const char *name, const ab_report **report);

/* Writes a report to the file that the option of its name (--csv, --html, ...) gives. A report that fails
 * changes nothing. */
AB_MUST_CHECK ab_status ab_report_to_file(const char *name, const char *path, const cJSON *document);

AB_END_DECLS

#endif
