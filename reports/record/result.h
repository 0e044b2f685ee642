/* The result document: reading, checking, writing. Reports read a run only from this JSON.
 *
 * Documents are cJSON trees owned by the caller (cJSON_Delete). The JSON Schema of every key is
 * reports/schema/result-1.schema.json. */
#ifndef AB_REPORTS_RECORD_RESULT_H
#define AB_REPORTS_RECORD_RESULT_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Parses and checks a document, with the journal of a run that has not ended (journal.h): schema name, major
 * version, required keys, types, matching array lengths. Errors (AB_INPUT; AB_NOT_COMPARABLE for another
 * schema or major version) name file, JSON path, expected and found. */
AB_MUST_CHECK ab_status ab_result_load(const char *path, cJSON **document);

/* Parses any JSON document without checking it. AB_INPUT names file and line. */
AB_MUST_CHECK ab_status ab_json_load(const char *path, cJSON **document);

/* Applies the checks of ab_result_load to a tree in memory. `origin` is used in messages. */
AB_MUST_CHECK ab_status ab_result_check(const cJSON *document, const char *origin);

/* Batches whose gradients are in one step: accumulated ones times simulated ranks. */
double ab_result_batches_per_step(const cJSON *document);

/* Computes cells[].summary and noise_floor from the rest of the document and stores them in it (replacing
 * existing ones). */
AB_MUST_CHECK ab_status ab_result_summarise(cJSON *document);

/* Writes the document as UTF-8 with shortest round-trip numbers, as outfile.h writes files: a process killed
 * at any time leaves either the old or the new document. "-" writes to stdout. */
AB_MUST_CHECK ab_status ab_result_write(const cJSON *document, const char *path);

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

/* Writes data files and gnuplot scripts of all plots into `folder` (created if missing) and renders PNGs
 * when gnuplot is found; of a document with very many cells only those of the run as a whole. *rendered:
 * number of PNGs; 0 without gnuplot (not an error; `note` receives a static text with the reason). */
AB_MUST_CHECK ab_status ab_plots_write(const cJSON *document, const char *folder, int *rendered,
                                       const char **note);

/* Number of pictures that ab_plots_write leaves out because there are very many cells; a sentence on it in
 * text[AB_PLOTS_UNDRAWN], NULL if there are none. */
enum { AB_PLOTS_UNDRAWN = 160 };
int ab_plots_undrawn(const cJSON *document);
const char *ab_plots_undrawn_text(const cJSON *document, char *text);

/* The two parts of ab_result_check, declared separately for tests. */

/* Keys, types, ranges and allowed values, exactly as in reports/schema/result-1.schema.json, except that
 * unknown keys are accepted (a later minor version may add keys). */
AB_MUST_CHECK ab_status ab_result_check_shape(const cJSON *document, const char *origin);

/* Constraints that a schema cannot express: sums of counts, matching lengths, indices in range, unique
 * ids. The shape must have been checked before. */
AB_MUST_CHECK ab_status ab_result_check_sums(const cJSON *document, const char *origin);

AB_END_DECLS

#endif
