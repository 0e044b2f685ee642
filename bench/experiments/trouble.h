/* Runs the arms (arms.h) of every failing cell of a document, rebuilt from its recorded command line. */
#ifndef AB_BENCH_EXPERIMENTS_TROUBLE_H
#define AB_BENCH_EXPERIMENTS_TROUBLE_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* Takes a summarised document. For each such cell prints a few lines to `text` (NULL: none) and adds an
 * object to `list`. */
AB_MUST_CHECK ab_status ab_trouble_of(const cJSON *document, FILE *text, cJSON *list);

#endif
