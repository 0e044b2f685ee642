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

/* Computes cells[].summary and noise_floor from the rest of the document and stores them in it (replacing
 * existing ones). */
AB_MUST_CHECK ab_status ab_result_summarise(cJSON *document);

/* Writes the document as UTF-8 with shortest round-trip numbers, as outfile.h writes files: a process killed
 * at any time leaves either the old or the new document. "-" writes to stdout. */
AB_MUST_CHECK ab_status ab_result_write(const cJSON *document, const char *path);

/* The two parts of ab_result_check, declared separately for tests. */

/* Keys, types, ranges and allowed values, exactly as in reports/schema/result-1.schema.json, except that
 * unknown keys are accepted (a later minor version may add keys). */
AB_MUST_CHECK ab_status ab_result_check_shape(const cJSON *document, const char *origin);

/* Constraints that a schema cannot express: sums of counts, matching lengths, indices in range, unique
 * ids. The shape must have been checked before. */
AB_MUST_CHECK ab_status ab_result_check_sums(const cJSON *document, const char *origin);

AB_END_DECLS

#endif
