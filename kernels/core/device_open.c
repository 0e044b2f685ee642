/* Choosing a device by name. */
#define _DEFAULT_SOURCE
#include "kernels/core/device.h"
#include "kernels/core/plugin.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The index in "cuda" (0) or "cuda:N"; -1 for any other text. */
static int cuda_index(const char *name) {
    if (strncmp(name, "cuda", 4) != 0) return -1;
    if (name[4] == '\0') return 0;
    size_t digits = strspn(name + 4 + (name[4] == ':'), "0123456789");
    if (name[4] != ':' || digits == 0 || digits > 4 || name[5 + digits] != '\0') return -1;
    return atoi(name + 5);
}

static ab_status open_cuda(const char *name, int index, const ab_device **device) {
    ab_status status = ab_cuda_open(index, device);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--device %s", name);
}

static ab_status open_auto(const ab_device **device, const char **why) {
    static char reason[512];
    if (ab_cuda_open(0, device) == AB_OK) return AB_OK;
    ab_text_show(reason, sizeof reason, "%s", ab_error_message());
    if (why) *why = reason;
    *device = &ab_device_cpu;
    return AB_OK;
}

ab_status ab_device_open(const char *name, const ab_device **device, const char **why) {
    int index = cuda_index(name);
    if (why) *why = NULL;
    if (index >= 0) return open_cuda(name, index, device);
    if (strcmp(name, "auto") == 0) return open_auto(device, why);
    if (strcmp(name, "cpu") != 0)
        return ab_fail(AB_CONFIG, "--device: expected auto, cpu, cuda or cuda:N, found '%s'", name);
    *device = &ab_device_cpu;
    return AB_OK;
}

/* The CPU's device table: the C library's memory. */

enum { HUGE_PAGE = 2 << 20 };

/* Asks for huge pages where a block fills them, the last one at least by half: fewer look-ups of addresses, a
 * fifth of the time of ops that move memory (docs/performance.md). Without them nothing else changes. */
static void advise_huge_pages(void *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
    if (block && bytes >= HUGE_PAGE) (void)madvise(block, bytes, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

/* Of a block: so that the last huge page is whole, or that it has none. */
static size_t rounded_bytes(size_t bytes) {
    const size_t unit = bytes >= HUGE_PAGE && bytes % HUGE_PAGE >= HUGE_PAGE / 2 ? HUGE_PAGE : 64;
    return bytes > SIZE_MAX - unit ? 0 : bytes == 0 ? unit : (bytes + unit - 1) / unit * unit;
}

static ab_status cpu_alloc(size_t bytes, void **block) {
    const size_t rounded = rounded_bytes(bytes);
    const size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    if (rounded == 0 || posix_memalign(block, align, rounded) != 0) *block = NULL;
    advise_huge_pages(*block, rounded);
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
