/* What fuzz targets, their mutators and their drivers share. A target is one function in one target_*.c and
 * one line in targets.def. It must not leave anything behind: no memory, no file, no changed setting. */
#ifndef AB_TESTS_FUZZ_FUZZ_H
#define AB_TESTS_FUZZ_FUZZ_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The targets: each tries data[size]. */
#define AB_FUZZ_TARGET(name, mutator, most, text) void fuzz_##name(const uint8_t *data, size_t size);
#include "tests/fuzz/targets.def"
#undef AB_FUZZ_TARGET

/* The entry point that libFuzzer calls. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- for targets ----------------------------------------------------------------------------- */

/* Aborts unless `truth`: something that was accepted contradicts itself. */
void fuzz_insist(bool truth);

/* A stream that discards its bytes. Aborts on a control character other than a line end, a tab and, with
 * `escapes`, ESC: text from an input must not reach a terminal as it is. Never closed. */
FILE *fuzz_sink(bool escapes);

/* Counts an input that passed the parser and the checks behind it. With AB_FUZZ_STATS set the share is
 * printed at the end. */
void fuzz_passed(void);

/* The next of several JSON values in [*at, end), and moves *at behind it; NULL if there is none. The caller
 * deletes it. */
cJSON *fuzz_next_json(const char **at, const char *end);

/* An input as NUL-terminated text in a block of its own length, so that a read past its end is seen. The
 * caller frees it. */
char *fuzz_string(const uint8_t *data, size_t size);

/* Inputs of several files: each is a length in two bytes, little-endian, and that many bytes; the last takes
 * what is left. Returns the part's bytes and moves *at behind it. */
typedef struct fuzz_part {
    const uint8_t *byte;
    size_t size;
} fuzz_part;
fuzz_part fuzz_next_part(const uint8_t **at, const uint8_t *end);

/* ---- the sandbox ----------------------------------------------------------------------------- */

/* While a target runs, the program sees only these files, in memory, and folders whose names are prefixes of
 * theirs. What it writes is discarded, and it starts no process. Paths and bytes are borrowed until
 * fuzz_files_clear. */
void fuzz_file(const char *path, const void *bytes, size_t size);
void fuzz_files_clear(void);

/* Called by the drivers around a target; fuzz_finish also flushes what it printed. */
void fuzz_sandbox(bool on);
void fuzz_finish(void);

/* ---- for mutators ---------------------------------------------------------------------------- */

/* A mutator changes data[size], which has space for `most` bytes, and returns the new size. */
typedef size_t fuzz_mutator(uint8_t *data, size_t size, size_t most, unsigned seed);
fuzz_mutator fuzz_mutate_bytes, fuzz_mutate_json, fuzz_mutate_npy, fuzz_mutate_zip, fuzz_mutate_safetensors,
    fuzz_mutate_files;

/* Joins two JSON inputs in out[most]: a value of the second replaces one of the first. Returns the size, 0 if
 * it cannot. */
size_t fuzz_cross_json(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                       size_t most, unsigned seed);

/* libFuzzer's own mutator of bytes. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* A pseudo-random number below `below` (at least 1); *state is any number. */
static inline unsigned fuzz_random(unsigned *state, unsigned below) {
    uint32_t x = *state * 2654435761u + 0x9E3779B9u;
    x ^= x >> 15;
    *state = (x *= 0x85EBCA6Bu);
    return (unsigned)((uint64_t)(x ^ x >> 13) * below >> 32);
}

#endif
