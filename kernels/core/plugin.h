/* Opening devices that live in a shared object: finding it, checking that it fits this program, asking it for
 * a device.
 *
 * The object exports one function, ab_backend_v1, which gets what the program offers and returns a table.
 * Nothing is opened before the driver has been seen, because the libraries behind the plugin take tens of
 * milliseconds and two hundred megabytes. An object that was opened stays open until the process ends. */
#ifndef AB_CORE_PLUGIN_H
#define AB_CORE_PLUGIN_H

#include "kernels/core/layout.h"

AB_BEGIN_DECLS

/* What the program offers to a plugin, which cannot see the program's own symbols. */
typedef struct ab_plugin_host {
    int abi;                                             /* AB_DEVICE_ABI */
    uint64_t device_layout;                              /* ab_device_layout */
    void (*fail)(ab_status status, const char *message); /* stores the user's message */
} ab_plugin_host;

typedef struct ab_plugin {
    int abi;                /* AB_DEVICE_ABI */
    uint64_t device_layout; /* ab_device_layout */
    /* The index-th device, or AB_UNAVAILABLE with the reason. Uses no device memory yet. */
    ab_status (*open)(int index, const ab_device **device);
} ab_plugin;

/* What a plugin exports, under this name. NULL: the program does not fit, says the plugin. */
typedef const ab_plugin *(*ab_plugin_entry)(const ab_plugin_host *host);
#define AB_PLUGIN_ENTRY "ab_backend_v1"

/* Opens `path` and checks the table. Errors are AB_UNAVAILABLE: the loader's reason, no such function,
 * another version. */
AB_MUST_CHECK ab_status ab_plugin_load(const char *path, const ab_plugin **plugin);

/* Asks the driver called `library` ("libcuda.so.1") how many devices it has. AB_UNAVAILABLE says what is
 * missing: the library, one of its functions, a device. Creates nothing on any device. */
AB_MUST_CHECK ab_status ab_cuda_driver_check(const char *library, int *devices);

/* The path of the plugin `file`: in the folder AMPBENCH_PLUGIN_DIR if that is set, else beside the program,
 * else in
 * ../lib/ampbench from there. Static text. AB_UNAVAILABLE names the folders that were searched. */
AB_MUST_CHECK ab_status ab_plugin_find(const char *file, const char **path);

/* All of it for CUDA. */
AB_MUST_CHECK ab_status ab_cuda_open(int index, const ab_device **device);

AB_END_DECLS

#endif
