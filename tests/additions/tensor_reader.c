/* A tensor reader as a newcomer would add it: eight bytes of name, then fp32 values, one tensor. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/tensorfile.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 8, FP32_BITS = 32 };

static bool recognise(const uint8_t *bytes, int64_t size) {
    return size >= MAGIC_BYTES && memcmp(bytes, "ADDED:::", MAGIC_BYTES) == 0;
}

static ab_status list(ab_tensorfile *file) {
    ab_tensor_entry entry = {.name = strdup("all"),
                             .element = ab_element_at(AB_ELEMENT_fp32),
                             .dtype = "F32",
                             .ndim = 1,
                             .offset = MAGIC_BYTES};
    entry.dim = calloc(1, sizeof *entry.dim);
    if (entry.dim) entry.dim[0] = (file->size - MAGIC_BYTES) / (int64_t)sizeof(float);
    ab_status status = entry.dim && entry.name ? ab_tensor_entry_measure(&entry, FP32_BITS)
                                               : ab_fail(AB_NO_MEMORY, "out of memory for a name");
    if (status == AB_OK) return ab_tensorfile_add(file, &entry);
    ab_tensor_entry_clear(&entry);
    return status;
}

const ab_tensor_reader ab_tensor_reader_added_reader = {
    .name = "added_reader", .suffix = ".added", .text = "raw fp32", .recognise = recognise, .list = list};
