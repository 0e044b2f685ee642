/* JSON helpers for reports beyond cJSON: look-ups that do not fail on a missing key, and exact,
 * reproducible output. Trees are cJSON's; nothing here owns memory. */
#ifndef AB_REPORTS_RECORD_JSON_H
#define AB_REPORTS_RECORD_JSON_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Largest integer allowed in a JSON number (2^53 - 1); every reader, including JavaScript, represents it
 * exactly. */
#define AB_JSON_MAX_INTEGER 9007199254740991.0

/* Returns the value at a dotted path ("config.batch") below `root`; NULL if a part is missing or `root` is
 * NULL. */
const cJSON *ab_json_at(const cJSON *root, const char *path);

/* Returns the string, number or boolean at a path, or the fallback if it is missing or of another type.
 *
 * Loaded documents conform to their schema (result.h), so only optional keys can be missing. The schema
 * defines the meaning of a missing key: its "default" if there is one; otherwise the value is unknown, and
 * the fallback must not be mistaken for a value: NAN, NULL, an empty or placeholder text, or 0 for counts
 * and sums. tests/unit/reports/record/test_paths_in_schema.c checks paths, types and fallbacks. */
const char *ab_json_text(const cJSON *root, const char *path, const char *fallback);
double ab_json_number(const cJSON *root, const char *path, double fallback);
bool ab_json_is_true(const cJSON *root, const char *path);

/* Returns the type name for messages: "string", "number", "null", ...; "nothing" for NULL. */
const char *ab_json_type_text(const cJSON *value);

/* Sets a member: replaces one of that name. The object owns the item. */
void ab_json_put(cJSON *object, const char *key, cJSON *item);
/* Add a member: null for a NULL text or a number that is not finite. */
void ab_json_add_text(cJSON *object, const char *key, const char *text);
void ab_json_add_number(cJSON *object, const char *key, double value);
/* The same; null if the number is not known. */
void ab_json_add_known(cJSON *object, const char *key, double value, bool known);

/* Prints a tree as UTF-8: two spaces of indentation, arrays without objects on one line, numbers with the
 * fewest of 15, 16 or 17 significant digits that read back as the same double (whole numbers below 2^53 as
 * integers), non-finite numbers as null, bytes that are not UTF-8 as U+FFFD. The same tree always gives
 * the same bytes. The caller checks ferror(out). The locale must be "C" (the default without setlocale). */
void ab_json_print(const cJSON *value, FILE *out);

/* The same on one line. */
void ab_json_print_line(const cJSON *value, FILE *out);

/* Prints a tree to the target of --json: the file `path`, or standard output for "-". AB_OUTPUT names the
 * option and the file. */
AB_MUST_CHECK ab_status ab_json_write_file(const cJSON *value, const char *path);

/* One number as ab_json_print writes it. */
void ab_json_print_number(double x, FILE *out);

AB_END_DECLS

#endif
