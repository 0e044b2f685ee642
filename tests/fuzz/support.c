/* What fuzz targets share: output that is discarded, inputs of several values, the count of accepted inputs.
 */
#define _GNU_SOURCE /* fopencookie */
#include "tests/fuzz/fuzz.h"

#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

void fuzz_insist(bool truth) {
    if (!truth) abort();
}

/* ---- output ---------------------------------------------------------------------------------- */

/* The cookie is not NULL if escapes are allowed. */
static ssize_t discard(void *escapes, const char *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        const bool line_end =
            c == '\n' || (c == '\r' && (i + 1 == size || bytes[i + 1] == '\n')); /* CSV has both */
        fuzz_insist((c >= 0x20 && c != 0x7f) || line_end || c == '\t' || (escapes && c == 0x1b));
    }
    return (ssize_t)size;
}

static FILE *sink[2];

FILE *fuzz_sink(bool escapes) {
    static char allowed;
    FILE **one = &sink[escapes];
    if (!*one) *one = fopencookie(escapes ? &allowed : NULL, "w", (cookie_io_functions_t){.write = discard});
    fuzz_insist(*one != NULL);
    return *one;
}

void fuzz_finish(void) {
    for (int i = 0; i < 2; i++)
        if (sink[i]) fflush(sink[i]);
    fuzz_files_clear();
    fuzz_sandbox(false);
}

/* ---- share of accepted inputs ---------------------------------------------------------------- */

static unsigned long long passed;

static void print_passed(void) { fprintf(stderr, "passed: %llu\n", passed); }

void fuzz_passed(void) {
    if (passed++ == 0 && getenv("AB_FUZZ_STATS")) atexit(print_passed);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

cJSON *fuzz_next_json(const char **at, const char *end) {
    const char *next = end;
    if (*at >= end) return NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(*at, (size_t)(end - *at), &next, 0);
    *at = value ? next : end;
    return value;
}

char *fuzz_string(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    fuzz_insist(text != NULL);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

fuzz_part fuzz_next_part(const uint8_t **at, const uint8_t *end) {
    fuzz_part part = {*at, (size_t)(end - *at)};
    if (part.size >= 2) {
        const size_t length = (size_t)part.byte[0] | (size_t)part.byte[1] << 8;
        part.byte += 2;
        part.size = length < part.size - 2 ? length : part.size - 2;
    }
    *at = part.byte + part.size;
    return part;
}
