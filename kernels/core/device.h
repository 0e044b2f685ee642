/* The device seam: one table of functions. Buffers carry their device; nothing else in the project asks which
 * it is.
 *
 * The CPU's table is built in. A CUDA device's table comes from a plugin that is opened at run time
 * (plugin.h): the program itself links nothing of CUDA and starts the same on a machine that has none. */
#ifndef AB_CORE_DEVICE_H
#define AB_CORE_DEVICE_H

#include "kernels/core/status.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_DEVICE_ABI = 5
}; /* changes whenever this struct, kernels/backend/backend.h or what they point to changes */

/* One fact about a device, for the record: "driver_version", "13.0". text is NULL for what could not be found
 * out. */
typedef void (*ab_device_fact)(void *context, const char *key, const char *text);

typedef struct ab_device {
    int abi;          /* AB_DEVICE_ABI of the table's maker */
    const char *name; /* "cpu", "cuda:0" */
    /* Uninitialised memory, 64-byte aligned, or AB_NO_MEMORY. */
    ab_status (*alloc)(size_t bytes, void **block);
    void (*free)(void *block);
    ab_status (*fill_zero)(void *block, size_t bytes);
    /* Done, with everything that was asked for before, when they return. */
    ab_status (*upload)(void *device_block, const void *host_block, size_t bytes);
    ab_status (*download)(void *host_block, const void *device_block, size_t bytes);
    ab_status (*synchronize)(void);
    const struct ab_backend
        *backend; /* how it computes (kernels/backend/backend.h); NULL: the CPU's own functions */
    /* The rest may be NULL. */
    ab_status (*memory)(int64_t *free_bytes, int64_t *total_bytes); /* of the whole device, now */
    void (*facts)(ab_device_fact fact, void *context); /* what it is, its libraries, clocks and limits; now */
} ab_device;

extern const ab_device ab_device_cpu;

/* The device for "cpu", "cuda", "cuda:1" or "auto". `why` (may be NULL) receives a static text that says why
 * auto did not choose the GPU, or NULL. Errors: AB_CONFIG for an unknown name, AB_UNAVAILABLE with the
 * reason. */
AB_MUST_CHECK ab_status ab_device_open(const char *name, const ab_device **device, const char **why);

AB_END_DECLS

#endif
