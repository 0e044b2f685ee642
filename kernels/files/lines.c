/* A buffer that grows to the longest line. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/files/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16 };

static ab_status make_room(ab_lines *lines) {
    if (lines->capacity - lines->used >= READ_BYTES) return AB_OK;
    const size_t capacity = 2 * lines->capacity + READ_BYTES;
    char *bytes = realloc(lines->bytes, capacity);
    if (!bytes) return ab_fail(AB_NO_MEMORY, "lines: out of memory");
    lines->bytes = bytes;
    lines->capacity = capacity;
    return AB_OK;
}

/* Takes the whole lines; `fresh`: where the new bytes begin, before which there is no line break. */
static ab_status take_lines(ab_lines *lines, size_t fresh, ab_line_taker take, void *context) {
    char *line = lines->bytes, *from = line + fresh, *end = line + lines->used, *stop;
    while ((stop = memchr(from, '\n', (size_t)(end - from)))) {
        *stop = '\0';
        AB_TRY(take(context, line, (size_t)(stop - line)));
        line = from = stop + 1;
    }
    lines->used = (size_t)(end - line);
    memmove(lines->bytes, line, lines->used);
    return AB_OK;
}

ab_status ab_lines_read(ab_lines *lines, int fd, ab_line_taker take, void *context, bool *open) {
    AB_TRY(make_room(lines));
    const size_t fresh = lines->used;
    const ssize_t got = read(fd, lines->bytes + fresh, READ_BYTES);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return AB_OK;
    *open = got > 0;
    if (got <= 0) return AB_OK;
    lines->used += (size_t)got;
    return take_lines(lines, fresh, take, context);
}

void ab_lines_clear(ab_lines *lines) {
    free(lines->bytes);
    *lines = (ab_lines){NULL, 0, 0};
}
