/* Choosing a device by name. */
#include "kernels/core/device.h"

#include <stdlib.h>
#include <string.h>

static const char no_cuda[] = "this build has no CUDA backend (libampbench_cuda.so is not part of it yet)";

static int is_cuda_name(const char *name) {
    if (strncmp(name, "cuda", 4) != 0) return 0;
    if (name[4] == '\0') return 1;
    if (name[4] != ':' || name[5] == '\0') return 0;
    return strspn(name + 5, "0123456789") == strlen(name + 5);
}

ab_status ab_device_open(const char *name, const ab_device **device, const char **why) {
    if (why) *why = NULL;
    if (strcmp(name, "cpu") == 0 || strcmp(name, "auto") == 0) {
        if (why && strcmp(name, "auto") == 0) *why = no_cuda;
        *device = &ab_device_cpu;
        return AB_OK;
    }
    if (is_cuda_name(name)) return ab_fail(AB_UNAVAILABLE, "--device %s: %s", name, no_cuda);
    return ab_fail(AB_CONFIG, "--device: expected auto, cpu, cuda or cuda:N, found '%s'", name);
}
