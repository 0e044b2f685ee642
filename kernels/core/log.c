/* Diagnostics on stderr, one write per line so that lines of several processes never mix. */
#include "kernels/core/log.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <stdarg.h>
#include <stdio.h>

static ab_log_level threshold = AB_LOG_WARN;

void ab_log_set_level(ab_log_level level) { threshold = level; }
ab_log_level ab_log_get_level(void) { return threshold; }

static void write_line(ab_log_level level, const char *name, const char *format, va_list args)
    AB_PRINTF(3, 0);

static void write_line(ab_log_level level, const char *name, const char *format, va_list args) {
    if (level > threshold) return;
    char text[1024], line[1024];
    ab_text_show_args(text, sizeof text, format, args);
    ab_text_escape(line, sizeof line, text);
    fprintf(stderr, "ampbench: %s: %s\n", name, line);
}

void ab_warn(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(AB_LOG_WARN, "warning", format, args);
    va_end(args);
}

void ab_info(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(AB_LOG_INFO, "info", format, args);
    va_end(args);
}

void ab_debug(const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_line(AB_LOG_DEBUG, "debug", format, args);
    va_end(args);
}
