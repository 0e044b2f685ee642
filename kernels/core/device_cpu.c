/* The CPU's device table: the C library's memory. */
#include "kernels/core/device.h"

#include <stdlib.h>
#include <string.h>

static ab_status cpu_alloc(size_t bytes, void **block) {
    size_t rounded = (bytes + 63) / 64 * 64;
    *block = rounded >= bytes ? aligned_alloc(64, rounded ? rounded : 64) : NULL;
    return *block ? AB_OK : ab_fail(AB_NO_MEMORY, "cannot allocate %zu bytes of host memory", bytes);
}

static ab_status cpu_fill_zero(void *block, size_t bytes) {
    memset(block, 0, bytes);
    return AB_OK;
}

static ab_status cpu_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return AB_OK;
}

static ab_status cpu_synchronize(void) { return AB_OK; }

const ab_device ab_device_cpu = {
    .abi = AB_DEVICE_ABI,
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = free,
    .fill_zero = cpu_fill_zero,
    .upload = cpu_copy,
    .download = cpu_copy,
    .synchronize = cpu_synchronize,
};
