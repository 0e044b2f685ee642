/* Shared by the tests of the tensor file readers: files built in memory, and what opening them must give. */
#ifndef AB_TESTS_TENSORFILE_TESTING_H
#define AB_TESTS_TENSORFILE_TESTING_H

#include "bench/tensorfile/tensorfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A growing array of bytes. */
typedef struct bytes {
    uint8_t *at;
    size_t size, capacity; /* capacity 0: `at` holds just the size */
} bytes;

static inline void put(bytes *to, const void *from, size_t n) {
    if (to->size + n >= to->capacity) {
        to->capacity = 2 * (to->size + n) + 16;
        to->at = realloc(to->at, to->capacity);
        assert_non_null(to->at);
    }
    if (n > 0) memcpy(to->at + to->size, from, n);
    to->size += n;
}

static inline void put_text(bytes *to, const char *text) { put(to, text, strlen(text)); }

/* `width` bytes, little-endian. */
static inline void put_number(bytes *to, uint64_t number, int width) {
    for (int i = 0; i < width; i++) put(to, &(uint8_t){(uint8_t)(i < 8 ? number >> (8 * i) : 0)}, 1);
}

static inline void put_fill(bytes *to, int byte, size_t n) {
    for (size_t i = 0; i < n; i++) put(to, &(uint8_t){(uint8_t)byte}, 1);
}

static inline void bytes_free(bytes *b) {
    free(b->at);
    *b = (bytes){0};
}

/* The file in a block of exactly its size, so that the address sanitizer sees every byte read past its end.
 */
static inline ab_status open_exact(const char *path, const bytes *b, void **block, ab_tensorfile **file) {
    *block = malloc(b->size > 0 ? b->size : 1);
    assert_non_null(*block);
    if (b->size > 0) memcpy(*block, b->at, b->size);
    return ab_tensorfile_open_memory(path, *block, (int64_t)b->size, file);
}

static inline int lines_in(const char *text) {
    int lines = 1;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

/* Opening must fail as bad input with one line that names the file and contains `reason`. */
static inline void assert_refused(const char *path, const bytes *b, const char *reason) {
    ab_tensorfile *file = NULL;
    void *block = NULL;
    ab_status status = open_exact(path, b, &block, &file);
    if (status != AB_INPUT || !strstr(ab_error_message(), reason))
        print_message("expected \"%s\", found status %d \"%s\"\n", reason, status, ab_error_message());
    assert_int_equal(status, AB_INPUT);
    assert_null(file);
    assert_non_null(strstr(ab_error_message(), reason));
    assert_ptr_equal(strstr(ab_error_message(), path), ab_error_message());
    assert_int_equal(lines_in(ab_error_message()), 1);
    free(block);
}

/* Reads everything readable of a file that may be damaged. Any answer will do but a crash or a wrong element
 * count. */
static inline void count_block(void *context, int chunk, const ab_tensor_block *block) {
    (void)chunk;
    volatile uint8_t last = 0; /* touch every page */
    for (int64_t i = 0; i < block->n; i += 1024) last = ((const uint8_t *)block->data)[i];
    (void)last;
    *(int64_t *)context += block->n;
}

static inline ab_status try_all(const char *path, const bytes *b) {
    ab_tensorfile *file = NULL;
    void *block = NULL;
    ab_status status = open_exact(path, b, &block, &file);
    for (int i = 0; status == AB_OK && i < file->count; i++) {
        int64_t seen = 0;
        ab_block_visitor visitor = {.context = &seen, .see = count_block};
        if (!file->tensor[i].element->format) continue;
        status = ab_tensorfile_stream(file, &file->tensor[i], &visitor);
        if (status == AB_OK) assert_int_equal(seen, file->tensor[i].count);
    }
    ab_tensorfile_close(file);
    free(block);
    return status;
}

/* Every shorter file must be refused; the whole one must be accepted. */
static inline void assert_every_truncation_refused(const char *path, const bytes *b) {
    assert_int_equal(try_all(path, b), AB_OK);
    for (size_t n = 0; n < b->size; n++) {
        bytes prefix = {b->at, n, 0};
        if (try_all(path, &prefix) != AB_INPUT) fail_msg("the first %zu bytes of %s were accepted", n, path);
    }
}

/* Every change of one byte must be refused or read in good order. */
static inline void assert_survives_byte_changes(const char *path, const bytes *b) {
    static const uint8_t masks[] = {0x01, 0x80, 0xFF, 0x20};
    for (size_t i = 0; i < b->size; i++)
        for (size_t m = 0; m < sizeof masks; m++) {
            b->at[i] ^= masks[m];
            ab_status status = try_all(path, b);
            assert_true(status == AB_OK || status == AB_INPUT);
            b->at[i] ^= masks[m];
        }
}

#endif
