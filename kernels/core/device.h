/* Device interface: one function table per device. Buffers carry a pointer to their device; no other code
 * checks which device it is.
 *
 * The CPU's table is built in. A CUDA device's table comes from a plugin opened at run time (plugin.h):
 * the program does not link against CUDA and also starts on machines without it. */
#ifndef AB_CORE_DEVICE_H
#define AB_CORE_DEVICE_H

#include "kernels/core/status.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_DEVICE_ABI = 10
}; /* increment when this struct, kernels/backend/backend.h or what they point to changes */

/* One fact about a device, for the record: "driver_version", "13.0". text is NULL if the value is unknown. */
typedef void (*ab_device_fact)(void *context, const char *key, const char *text);

typedef struct ab_device {
    int abi;          /* AB_DEVICE_ABI that the table was built with */
    const char *name; /* "cpu", "cuda:0" */
    /* Uninitialised memory, 64-byte aligned, or AB_NO_MEMORY. */
    ab_status (*alloc)(size_t bytes, void **block);
    void (*free)(void *block);
    ab_status (*fill_zero)(void *block, size_t bytes);
    /* Blocking: on return, this and all earlier operations are complete. */
    ab_status (*upload)(void *device_block, const void *host_block, size_t bytes);
    ab_status (*download)(void *host_block, const void *device_block, size_t bytes);
    ab_status (*synchronize)(void);
    const struct ab_backend *backend; /* compute functions (kernels/backend/backend.h); NULL: the CPU's */
    /* The rest may be NULL. */
    ab_status (*memory)(int64_t *free_bytes, int64_t *total_bytes); /* current values of the whole device */
    void (*facts)(ab_device_fact fact, void *context); /* current name, libraries, clocks and limits */
    /* The most bytes that the device's own functions held at once beside the blocks given out: lists of a
     * step, scratch of probes and of trying a library's algorithms. */
    int64_t (*held)(void);
    const struct ab_device_ranks *ranks; /* exchanges with other processes' devices (device_ranks.h) */
} ab_device;

extern const ab_device ab_device_cpu;

/* The device for "cpu", "cuda", "cuda:1" or "auto". `why` (may be NULL) receives a static string with the
 * reason why "auto" did not choose the GPU, or NULL. Errors: AB_CONFIG for an unknown name, AB_UNAVAILABLE
 * with the reason. */
AB_MUST_CHECK ab_status ab_device_open(const char *name, const ab_device **device, const char **why);

AB_END_DECLS

#endif
