/* The result document: reading, checking, writing. Reports know a run only through this JSON.
 *
 * Documents are cJSON trees owned by the caller (cJSON_Delete). The JSON Schema of every key is
 * reports/schema/result-1.schema.json. */
#ifndef AB_REPORTS_RECORD_RESULT_H
#define AB_REPORTS_RECORD_RESULT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Parses and checks a document: schema name, major version, required keys, types, array lengths that must
 * agree. Errors (AB_INPUT; AB_NOT_COMPARABLE for another schema or major version) name file, JSON path,
 * expected and found. */
AB_MUST_CHECK ab_status ab_result_load(const char *path, cJSON **document);

/* Only parses: any JSON document. AB_INPUT names file and line. */
AB_MUST_CHECK ab_status ab_json_load(const char *path, cJSON **document);

/* The same check on a tree in memory. `origin` is used in messages. */
AB_MUST_CHECK ab_status ab_result_check(const cJSON *document, const char *origin);

/* Computes cells[].summary and noise_floor from the rest and puts them into the document (replacing older
 * ones). */
AB_MUST_CHECK ab_status ab_result_summarise(cJSON *document);

/* Writes the document as UTF-8 with shortest round-trip numbers: temporary file beside `path`, fsync, rename,
 * fsync of the directory. A kill at any instant leaves the old or the new document. "-" writes to stdout. */
AB_MUST_CHECK ab_status ab_result_write(const cJSON *document, const char *path);

/* A report turns a document into text. One file and one line of reports.def each. */
typedef struct ab_report {
    const char *name, *text;
    ab_status (*write)(const cJSON *document, FILE *out, int color);
} ab_report;

/* The rows of reports.def, in order: i in [0, count). find: AB_USAGE with the nearest name for an unknown
 * one. */
int ab_report_count(void);
const ab_report *ab_report_at(int i);
AB_MUST_CHECK ab_status ab_report_find(const char *name, const ab_report **report);

/* Writes data files and gnuplot scripts of all plots into `folder` (created if missing) and renders PNGs when
 * gnuplot is found. *rendered: number of PNGs; 0 without gnuplot (not an error; `note` receives a static text
 * why). */
AB_MUST_CHECK ab_status ab_plots_write(const cJSON *document, const char *folder, int *rendered,
                                       const char **note);

AB_END_DECLS

#endif
