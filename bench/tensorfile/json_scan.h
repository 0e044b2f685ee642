/* A strict JSON reader in one pass, without a tree, for headers of untrusted files: allocations are bounded
 * by the size of the text. Integers are exact; strings are valid UTF-8 without NUL; nesting is limited and
 * not recursive.
 *
 * Not a general parser: values are read in the order of the text. Errors are AB_INPUT with the byte
 * position. */
#ifndef AB_BENCH_TENSORFILE_JSON_SCAN_H
#define AB_BENCH_TENSORFILE_JSON_SCAN_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_JSON_MAX_DEPTH = 64 };

typedef struct ab_json_scan {
    const char *text; /* borrowed; need not end in NUL */
    size_t length, at;
} ab_json_scan;

/* True if the bytes are well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms); `at` (may be NULL)
 * receives the position of the first bad byte. */
bool ab_utf8_valid(const char *text, size_t length, size_t *at);

/* Starts at the first byte; fails if the text is not UTF-8. `text` is borrowed. */
AB_MUST_CHECK ab_status ab_json_begin(ab_json_scan *scan, const char *text, size_t length);

/* Consumes `bracket` ('{' or '['). */
AB_MUST_CHECK ab_status ab_json_open(ab_json_scan *scan, char bracket);

/* Called before each member or element: consumes the comma (not before the first, *index 0) or the closing
 * bracket, sets *more and increments *index. */
AB_MUST_CHECK ab_status ab_json_more(ab_json_scan *scan, char close, int64_t *index, bool *more);

/* Reads a string, owned by the caller; ab_json_key also consumes the colon after it. */
AB_MUST_CHECK ab_status ab_json_string(ab_json_scan *scan, char **string);
AB_MUST_CHECK ab_status ab_json_key(ab_json_scan *scan, char **key);

/* Reads an integer in [0, INT64_MAX] written without fraction or exponent. */
AB_MUST_CHECK ab_status ab_json_natural(ab_json_scan *scan, int64_t *number);

/* Checks and skips any value. */
AB_MUST_CHECK ab_status ab_json_skip(ab_json_scan *scan);

/* Fails unless only white space is left. */
AB_MUST_CHECK ab_status ab_json_end(ab_json_scan *scan);

AB_END_DECLS

#endif
