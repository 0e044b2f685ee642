/* `ampbench advise LOG`: how high a loss scale may be, from the scales and skips of a training log. */
#ifndef AB_BENCH_CMD_ADVISE_LOG_H
#define AB_BENCH_CMD_ADVISE_LOG_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Reads the log, prints the advice, and writes it to `json` (NULL: not; "-": in place of the text). alpha:
 * share of steps that may overflow; scale: to predict for, 0: none. AB_NUMERICS where no step was taken. */
AB_MUST_CHECK ab_status ab_advise_from_log(const char *path, double alpha, double scale, const char *json);

/* Whether the file is a log, by its first bytes. */
bool ab_advise_is_log(const char *path);

AB_END_DECLS

#endif
