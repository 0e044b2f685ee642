/* Fuzz target: the npy reader. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tensorfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_tensorfile("input.npy", data, size);
    return 0;
}
