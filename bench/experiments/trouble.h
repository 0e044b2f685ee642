/* The arms (arms.h) of every sick cell of a document, rebuilt from its recorded command line. */
#ifndef AB_BENCH_EXPERIMENTS_TROUBLE_H
#define AB_BENCH_EXPERIMENTS_TROUBLE_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* Of a summarised document. Prints a few lines each to `text` (NULL: nothing) and adds an object each to
 * `list`. */
AB_MUST_CHECK ab_status ab_trouble_of(const cJSON *document, FILE *text, cJSON *list);

#endif
