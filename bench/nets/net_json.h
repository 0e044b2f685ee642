/* Strict JSON for network files, with line numbers, and checks for their values.
 *
 * cJSON builds the tree. It keeps no positions and accepts more than JSON (trailing text, control
 * characters), so a scanner runs first: it reports the first syntax error by line and column and records the
 * line of every value. Private to bench/nets; independent of ops. All errors are AB_CONFIG unless said
 * otherwise. */
#ifndef AB_BENCH_NETS_NET_JSON_H
#define AB_BENCH_NETS_NET_JSON_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_NET_JSON_BYTES = 1 << 20, /* of a network file */
    AB_NET_JSON_DEPTH = 32,      /* of nested arrays and objects */
    AB_NET_JSON_TEXT = 128       /* bytes of a quoted value or a hint */
};

/* Location for messages: "path:line: op 'name': ...". */
typedef struct ab_net_json_place {
    const char *path;
    const char *op; /* NULL outside of an op */
} ab_net_json_place;

typedef struct ab_net_json_range {
    double low, high; /* inclusive */
} ab_net_json_range;

/* Parses `length` bytes of UTF-8; the caller frees *root with cJSON_Delete. AB_NO_MEMORY if allocation
 * fails. */
AB_MUST_CHECK ab_status ab_net_json_parse(const char *text, size_t length, const char *path, cJSON **root);

/* The 1-based line on which a value of a parsed tree starts. */
int ab_net_json_line(const cJSON *value);

/* Fails with a message that starts with "path:line: op 'name': ". */
ab_status ab_net_json_fail(const ab_net_json_place *place, const cJSON *at, const char *format, ...)
    AB_PRINTF(3, 4);

/* A value for a message: `"relu"`, `42`, `an object`; printable ASCII only, at most AB_NET_JSON_TEXT bytes.
 * Returns `text`. */
const char *ab_net_json_found(const cJSON *value, char *text);

/* The same for a string outside of a tree: a key, a name from the command line. */
const char *ab_net_json_quote(const char *string, char *text);

/* "; did you mean 'x'?" with the one of names[count] nearest to `word`, or "". Returns `text`
 * (AB_NET_JSON_TEXT bytes). */
const char *ab_net_json_hint(const char *word, const char *const *names, int count, char *text);

/* Checks that `object` is an object whose keys are among names[count], each at most once. `what` names it in
 * messages: "the network", "'init'". */
AB_MUST_CHECK ab_status ab_net_json_check_keys(const ab_net_json_place *place, const cJSON *object,
                                               const char *what, const char *const *names, int count);

/* The value of a required key. */
AB_MUST_CHECK ab_status ab_net_json_member(const ab_net_json_place *place, const cJSON *object,
                                           const char *key, const cJSON **value);

/* Values by type. `label` names the value in messages, usually by its key. */
AB_MUST_CHECK ab_status ab_net_json_number(const ab_net_json_place *place, const cJSON *value,
                                           const char *label, ab_net_json_range range, double *number);
AB_MUST_CHECK ab_status ab_net_json_integer(const ab_net_json_place *place, const cJSON *value,
                                            const char *label, ab_net_json_range range, int64_t *number);
AB_MUST_CHECK ab_status ab_net_json_bool(const ab_net_json_place *place, const cJSON *value,
                                         const char *label, bool *flag);

/* A name: 1 to 64 characters of [A-Za-z0-9_.-], so that it is safe in file names, tables and terminals.
 * Borrowed. */
AB_MUST_CHECK ab_status ab_net_json_name(const ab_net_json_place *place, const cJSON *value,
                                         const char *label, const char **name);

/* A line of text without control characters, at most 200 bytes. Borrowed. */
AB_MUST_CHECK ab_status ab_net_json_text(const ab_net_json_place *place, const cJSON *value,
                                         const char *label, const char **text);

AB_END_DECLS

#endif
