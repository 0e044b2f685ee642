/* Text that arrives in pieces through a descriptor, taken line by line. */
#ifndef AB_FILES_LINES_H
#define AB_FILES_LINES_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* What was read and is no whole line yet. All zero: nothing. */
typedef struct ab_lines {
    char *bytes;
    size_t used, capacity;
} ab_lines;

/* Called with a line of n bytes and a NUL in place of its line break. A failure ends the reading. */
typedef ab_status (*ab_line_taker)(void *context, char *line, size_t n);

/* Reads once from fd and hands the whole lines to `take`. *open becomes false at the end of the stream.
 * AB_NO_MEMORY, and the failures of `take`. */
AB_MUST_CHECK ab_status ab_lines_read(ab_lines *lines, int fd, ab_line_taker take, void *context, bool *open);

/* Frees what is kept; *lines can be used again. */
void ab_lines_clear(ab_lines *lines);

AB_END_DECLS

#endif
