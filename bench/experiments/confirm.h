/* Trying a remedy: the run of a document again, for one sick cell and its O0, with what its first verdict
 * advises; then the same diagnosis of the new record. Starts this program as a child; what the child prints
 * is thrown away, messages are not. */
#ifndef AB_BENCH_EXPERIMENTS_CONFIRM_H
#define AB_BENCH_EXPERIMENTS_CONFIRM_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_CONFIRM_TEXT = 2048 };

/* Tries the first verdict of every sick cell of a summarised document. The new documents are written to
 * `out`, one after the other. Prints a line each to `text` (NULL: nothing) and adds an object each to `list`
 * (NULL: nothing). */
AB_MUST_CHECK ab_status ab_confirm(const cJSON *document, const char *out, FILE *text, cJSON *list);

AB_END_DECLS

#endif
