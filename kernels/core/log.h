/* Diagnostics on stderr: one line each, prefixed with the program's name and the level. Not for results,
 * progress (bench/run/progress.c) or the final error of a command (bench/main.c prints it). */
#ifndef AB_CORE_LOG_H
#define AB_CORE_LOG_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

typedef enum ab_log_level { AB_LOG_QUIET, AB_LOG_WARN, AB_LOG_INFO, AB_LOG_DEBUG } ab_log_level;

/* Default AB_LOG_WARN. Process-wide; set once, before threads start. */
void ab_log_set_level(ab_log_level level);
ab_log_level ab_log_get_level(void);

/* Write one line to stderr, formatted as by printf, if the level is enabled. */
void ab_warn(const char *format, ...) AB_PRINTF(1, 2);
void ab_info(const char *format, ...) AB_PRINTF(1, 2);
void ab_debug(const char *format, ...) AB_PRINTF(1, 2);

AB_END_DECLS

#endif
