/* Diagnostics on stderr: one line each, prefixed with the program's name and the level. Results never come
 * here. Not for progress (bench/run/progress.c) and not for the error a command ends with (bench/main.c
 * prints it). */
#ifndef AB_CORE_LOG_H
#define AB_CORE_LOG_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

typedef enum ab_log_level { AB_LOG_QUIET, AB_LOG_WARN, AB_LOG_INFO, AB_LOG_DEBUG } ab_log_level;

/* Default AB_LOG_WARN. Process-wide; set once, before threads start. */
void ab_log_set_level(ab_log_level level);
ab_log_level ab_log_get_level(void);

/* One line to stderr, as printf; each is silent below its level. */
void ab_warn(const char *format, ...) AB_PRINTF(1, 2);
void ab_info(const char *format, ...) AB_PRINTF(1, 2);
void ab_debug(const char *format, ...) AB_PRINTF(1, 2);

AB_END_DECLS

#endif
