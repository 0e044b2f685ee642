/* Tests a remedy: repeats the training of a document (bench/run/replay.h) for one failing cell and its O0
 * with the options that its first verdict advises, then diagnoses the new record in the same way. Starts this
 * program as a child process; its stdout is discarded, its stderr is not. Nothing is written but to a folder
 * that is removed again. */
#ifndef AB_BENCH_EXPERIMENTS_CONFIRM_H
#define AB_BENCH_EXPERIMENTS_CONFIRM_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_CONFIRM_TEXT = 2048 };

/* Tests the first verdict of every failing cell of a summarised document. Prints a line each to `text` (NULL:
 * nothing) and adds an object each to `list` (NULL: nothing). */
AB_MUST_CHECK ab_status ab_confirm(const cJSON *document, FILE *text, cJSON *list);

AB_END_DECLS

#endif
