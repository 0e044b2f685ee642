/* What reports need of JSON beyond cJSON: look-ups that never fail on a missing key, and exact, repeatable
 * output. Trees stay cJSON's; nothing here owns memory. */
#ifndef AB_REPORTS_RECORD_JSON_H
#define AB_REPORTS_RECORD_JSON_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Largest integer a JSON number may hold here (2^53 - 1): every reader, JavaScript's too, keeps it exact. */
#define AB_JSON_MAX_INTEGER 9007199254740991.0

/* The value at a dotted path ("config.batch") below `root`; NULL when a part is missing or `root` is NULL. */
const cJSON *ab_json_at(const cJSON *root, const char *path);

/* The string, number or boolean at a path; the fallback when it is missing or of another type.
 *
 * Documents that were loaded follow their schema (result.h), so only keys that it does not require can be
 * missing. What a missing one means is said in one place, the schema: "default", where it means a value; else
 * it is not known, and the fallback is one that no reader takes for a value: NAN, NULL, an empty or
 * placeholder text, or 0 of what is counted or summed. tests/unit/reports/record/test_paths_in_schema.c
 * checks paths, types and fallbacks. */
const char *ab_json_text(const cJSON *root, const char *path, const char *fallback);
double ab_json_number(const cJSON *root, const char *path, double fallback);
bool ab_json_is_true(const cJSON *root, const char *path);

/* "string", "number", "null", ... for messages; "nothing" for NULL. */
const char *ab_json_type_text(const cJSON *value);

/* Prints a tree as UTF-8: two spaces of indentation, arrays without objects on one line, numbers with the
 * fewest of 15, 16 or 17 significant digits that read back as the same double (whole numbers below 2^53 as
 * integers), numbers that are not finite as null, bytes that are not UTF-8 as U+FFFD. The same tree always
 * gives the same bytes. The caller checks ferror(out). The locale must be "C", as it is in a program that
 * never calls setlocale. */
void ab_json_print(const cJSON *value, FILE *out);

/* Prints a tree to what --json named: the file `path`, or standard output if that is "-". AB_OUTPUT names
 * option and file. */
AB_MUST_CHECK ab_status ab_json_write_file(const cJSON *value, const char *path);

/* One number as ab_json_print writes it. */
void ab_json_print_number(double x, FILE *out);

AB_END_DECLS

#endif
