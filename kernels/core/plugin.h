/* Devices in a shared object: finds the object, checks its version and opens a device.
 *
 * The object exports one function, ab_backend_v1, which receives the program's functions and returns a
 * table. The plugin is loaded only if the driver was found, because its libraries take tens of
 * milliseconds and 200 MB. A loaded object stays open until the process ends. */
#ifndef AB_CORE_PLUGIN_H
#define AB_CORE_PLUGIN_H

#include "kernels/core/layout.h"

AB_BEGIN_DECLS

/* What the program passes to a plugin, which cannot link to the program's symbols. */
typedef struct ab_plugin_host {
    int abi;                                             /* AB_DEVICE_ABI */
    uint64_t device_layout;                              /* ab_device_layout */
    void (*fail)(ab_status status, const char *message); /* stores the error message */
} ab_plugin_host;

typedef struct ab_plugin {
    int abi;                /* AB_DEVICE_ABI */
    uint64_t device_layout; /* ab_device_layout */
    /* The index-th device, or AB_UNAVAILABLE with the reason. Allocates no device memory. */
    ab_status (*open)(int index, const ab_device **device);
    /* Counting in another program's memory (kernels/census/shown.h); needs no open device. NULL: none. */
    const struct ab_shown_ops *shown;
} ab_plugin;

/* The function that a plugin exports as AB_PLUGIN_ENTRY. NULL: incompatible program version. */
typedef const ab_plugin *(*ab_plugin_entry)(const ab_plugin_host *host);
#define AB_PLUGIN_ENTRY "ab_backend_v1"

/* Opens `path` and checks the table. Errors are AB_UNAVAILABLE: the loader's message, missing entry
 * function, version mismatch. */
AB_MUST_CHECK ab_status ab_plugin_load(const char *path, const ab_plugin **plugin);

/* Number of devices of the driver `library` ("libcuda.so.1"). AB_UNAVAILABLE names what is missing: the
 * library, one of its functions, a device. Creates no context on any device. */
AB_MUST_CHECK ab_status ab_cuda_driver_check(const char *library, int *devices);

/* The path of the plugin `file`: in the directory AMPBENCH_PLUGIN_DIR if set, else in the directory of the
 * program (or of the shared library that calls), else in ../lib/ampbench relative to it. Static string.
 * AB_UNAVAILABLE says `missing` ("this build has no CUDA backend") and the directories searched. */
AB_MUST_CHECK ab_status ab_plugin_find(const char *file, const char *missing, const char **path);

/* Finds and loads the CUDA plugin, on a machine with a GPU. AB_UNAVAILABLE with the reason. */
AB_MUST_CHECK ab_status ab_cuda_plugin(int *devices, const ab_plugin **plugin);

/* The same, and opens device `index`. */
AB_MUST_CHECK ab_status ab_cuda_open(int index, const ab_device **device);

AB_END_DECLS

#endif
