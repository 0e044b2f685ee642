/* Fuzz target: the npz reader. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tensorfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_tensorfile("input.npz", data, size);
    return 0;
}
