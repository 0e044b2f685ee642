/* JSON text that a caller of libampprobe gives: checked, walked, and copied as it is. No tree is built. Depth
 * is limited to 64. */
#ifndef AB_PROBES_LIB_JSON_READ_H
#define AB_PROBES_LIB_JSON_READ_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* A value inside a text that was checked: borrowed. `kind`: '{' '[' '"' '0' (number) 't' (true) 'f' 'n'. */
typedef struct ab_lib_json {
    const char *at;
    size_t length;
    char kind;
} ab_lib_json;

/* Checks a complete text of one value, in UTF-8. AB_CONFIG says where it is wrong. */
AB_MUST_CHECK ab_status ab_lib_json_check(const char *text, ab_lib_json *value);

/* Walks a checked object or array: `*at` starts as NULL. False at its end. `key`: without quotes, as written
 * (escapes kept); empty for arrays. */
bool ab_lib_json_next(const ab_lib_json *holder, const char **at, ab_lib_json *key, ab_lib_json *value);

/* A checked number. */
double ab_lib_json_number(const ab_lib_json *value);

/* The text of a checked string, escapes resolved; owned by the caller (free). NULL: out of memory. */
AB_MUST_CHECK char *ab_lib_json_text(const ab_lib_json *value);

/* Whether a key is `text`. */
bool ab_lib_json_is(const ab_lib_json *key, const char *text);

AB_END_DECLS

#endif
