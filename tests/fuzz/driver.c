/* libFuzzer's entry points for one target. AB_FUZZ_NAME and AB_FUZZ_MUTATOR are its row of targets.def, set
 * by CMake. AB_FUZZ_PLAIN in the environment: libFuzzer's own mutator instead, to compare. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)

int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t most, unsigned seed);

static bool plain;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    plain = getenv("AB_FUZZ_PLAIN") != NULL;
    setenv("PATH", "", 1); /* no gnuplot */
    setenv("TZ", "UTC", 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_sandbox(true);
    JOIN(fuzz_, AB_FUZZ_NAME)(data, size);
    fuzz_finish();
    return 0;
}

/* One mutation in sixteen is of plain bytes: what is not well-formed must be met too. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    unsigned state = seed;
    if (plain || fuzz_random(&state, 16) == 0) return LLVMFuzzerMutate(data, size, most);
    return JOIN(fuzz_mutate_, AB_FUZZ_MUTATOR)(data, size, most, state);
}

static bool takes_json(void) { return JOIN(fuzz_mutate_, AB_FUZZ_MUTATOR) == fuzz_mutate_json; }

/* Elsewhere than in JSON: the first part of one input and the last of the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t most, unsigned seed) {
    unsigned state = seed;
    size_t joined = takes_json() && !plain ? fuzz_cross_json(a, a_size, b, b_size, out, most, seed) : 0;
    if (joined) return joined;
    size_t head = fuzz_random(&state, (unsigned)a_size + 1), from = fuzz_random(&state, (unsigned)b_size + 1);
    head = head < most ? head : most;
    const size_t tail = b_size - from < most - head ? b_size - from : most - head;
    memcpy(out, a, head);
    memcpy(out + head, b + from, tail);
    return head + tail;
}
