/* Reads whatever an accepted file promises and checks the promises: extents lie in the file, every element
 * comes once. */
#include "tests/fuzz/tensorfile.h"

#include "bench/tensorfile/json_scan.h"
#include "bench/tensorfile/tensorfile.h"

#include <stdlib.h>
#include <string.h>

static void insist(bool truth) {
    if (!truth) abort();
}

typedef struct tally {
    int chunk;
    int64_t next;
    uint64_t sum; /* of all stored bytes: makes the sanitizer see each */
} tally;

static void see(void *context, int chunk, const ab_tensor_block *block) {
    tally *t = context;
    insist(chunk >= t->chunk && chunk < AB_TENSORFILE_CHUNKS && block->first == t->next && block->n > 0);
    t->chunk = chunk;
    t->next += block->n;
    const uint8_t *bytes = block->data;
    for (int64_t i = 0; i < block->n * block->format->storage_bytes; i++) t->sum += bytes[i];
}

static void check_entry(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    char text[AB_TENSORFILE_TEXT];
    insist(strlen(ab_tensor_printable(entry->name, text)) < AB_TENSORFILE_TEXT &&
           ab_utf8_valid(text, strlen(text), NULL));
    insist(strlen(ab_tensor_shape_text(entry, text)) < AB_TENSORFILE_TEXT);
    insist(entry->count >= 0 && entry->bytes >= 0 && entry->offset >= 0 && entry->offset <= file->size);
    insist(entry->packed || entry->bytes <= file->size - entry->offset);
    if (!entry->element->format) return;
    tally t = {0};
    ab_block_visitor visitor = {.context = &t, .see = see};
    if (ab_tensorfile_stream(file, entry, &visitor) == AB_OK) insist(t.next == entry->count);
}

void fuzz_tensorfile(const char *path, const uint8_t *data, size_t size) {
    ab_tensorfile *file = NULL;
    if (ab_tensorfile_open_memory(path, data, (int64_t)size, &file) != AB_OK) return;
    for (int i = 0; i < file->count; i++) check_entry(file, &file->tensor[i]);
    ab_tensorfile_close(file);
}
