/* A fuzz target: libFuzzer's entry point, called by its driver or by replay.c. Returns 0. */
#ifndef AB_TESTS_FUZZ_FUZZ_H
#define AB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
