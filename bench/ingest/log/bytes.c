/* Bytes of a log: those that wait for the rest of their line, and words in them. */
#include "bench/ingest/log/format.h"

#include <stdlib.h>
#include <string.h>

bool ab_log_buffer_add(ab_log_buffer *buffer, const char *bytes, size_t size, size_t most) {
    if (size > most || buffer->size > most - size) return false;
    if (buffer->size + size > buffer->capacity) {
        const size_t capacity = 2 * (buffer->size + size);
        char *grown = realloc(buffer->byte, capacity);
        if (!grown) return false;
        buffer->byte = grown;
        buffer->capacity = capacity;
    }
    if (size > 0) memcpy(buffer->byte + buffer->size, bytes, size);
    buffer->size += size;
    return true;
}

const char *ab_log_find_bytes(const char *from, const char *end, const char *word, size_t size) {
    while (from && end - from >= (ptrdiff_t)size) { /* memmem prepares a table for each line */
        const char *at = memchr(from, word[0], (size_t)(end - from) - size + 1);
        if (!at || (at[size - 1] == word[size - 1] && memcmp(at, word, size) == 0)) return at;
        from = at + 1;
    }
    return NULL;
}
