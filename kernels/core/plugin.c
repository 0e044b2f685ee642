/* dlopen, dlsym and the checks around them. */
#define _GNU_SOURCE
#include "kernels/core/plugin.h"

#include "kernels/core/text_path.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUDA_NO_DEVICE = 100, CUDA_STUB = 34 };

/* ---- the driver ------------------------------------------------------------------------------ */

typedef struct driver {
    int (*init)(unsigned flags);
    int (*count)(int *devices);
} driver;

/* dlsym returns a data pointer; C does not convert it to a function pointer. */
static int find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static ab_status ask(const driver *cuda, int *devices) {
    int code = cuda->init(0);
    *devices = 0;
    if (code == 0) code = cuda->count(devices);
    if (code == CUDA_NO_DEVICE || (code == 0 && *devices < 1))
        return ab_fail(AB_UNAVAILABLE, "the NVIDIA driver finds no GPU");
    if (code == CUDA_STUB)
        return ab_fail(AB_UNAVAILABLE,
                       "the libcuda.so.1 found is the toolkit's stub, there is no NVIDIA driver");
    return code == 0 ? AB_OK : ab_fail(AB_UNAVAILABLE, "the NVIDIA driver does not start (error %d)", code);
}

ab_status ab_cuda_driver_check(const char *library, int *devices) {
    driver cuda;
    *devices = 0;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return ab_fail(AB_UNAVAILABLE, "no NVIDIA driver (%s)", dlerror());
    if (!find(handle, "cuInit", &cuda.init) || !find(handle, "cuDeviceGetCount", &cuda.count)) {
        dlclose(handle);
        return ab_fail(AB_UNAVAILABLE, "%s is no NVIDIA driver: it has no cuInit and cuDeviceGetCount",
                       library);
    }
    return ask(&cuda, devices); /* stays open for the CUDA runtime */
}

/* ---- the plugin ------------------------------------------------------------------------------ */

static void store_message(ab_status status, const char *message) { (void)ab_fail(status, "%s", message); }

static ab_status check_fit(const char *path, const ab_plugin *plugin) {
    if (!plugin) return ab_fail(AB_UNAVAILABLE, "%s was built for another version of ampbench", path);
    if (plugin->abi != AB_DEVICE_ABI || plugin->device_layout != ab_device_layout())
        return ab_fail(AB_UNAVAILABLE,
                       "%s was built for another version of ampbench (interface %d, expected %d)", path,
                       plugin->abi, (int)AB_DEVICE_ABI);
    return AB_OK;
}

ab_status ab_plugin_load(const char *path, const ab_plugin **plugin) {
    static ab_plugin_host host = {.abi = AB_DEVICE_ABI, .fail = store_message};
    ab_plugin_entry entry;
    host.device_layout = ab_device_layout();
    *plugin = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return ab_fail(AB_UNAVAILABLE, "%s", dlerror());
    ab_status status = AB_OK;
    if (!find(handle, AB_PLUGIN_ENTRY, &entry)) {
        status = ab_fail(AB_UNAVAILABLE, "%s has no function %s", path, AB_PLUGIN_ENTRY);
    } else {
        *plugin = entry(&host);
        status = check_fit(path, *plugin);
    }
    if (status == AB_OK) return AB_OK;
    *plugin = NULL;
    dlclose(handle);
    return status;
}

static int without_name(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    return slash != NULL;
}

/* The folder of the running program, without the slash. */
static int program_folder(char *folder, size_t size) {
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    if (length <= 0) return 0;
    folder[length] = '\0';
    return without_name(folder);
}

/* That of the shared library that this code is in; the program's where it is in none. */
static int own_folder(char *folder, size_t size) {
    static const char here = 0;
    char own[PATH_MAX], *real = NULL;
    Dl_info about;
    if (dladdr(&here, &about) && strstr(about.dli_fname, ".so")) real = realpath(about.dli_fname, own);
    if (!real || strlen(own) >= size) return program_folder(folder, size);
    memcpy(folder, own, strlen(own) + 1);
    return without_name(folder);
}

ab_status ab_plugin_find(const char *file, const char *missing, const char **path) {
    static char found[PATH_MAX + 64];
    char folder[PATH_MAX];
    const char *chosen = getenv("AMPBENCH_PLUGIN_DIR");
    *path = found;
    if (chosen) {
        AB_TRY(ab_text_path("AMPBENCH_PLUGIN_DIR", found, sizeof found, "%s/%s", chosen, file));
        if (access(found, R_OK) == 0) return AB_OK;
        return ab_fail(AB_UNAVAILABLE, "there is no %s in AMPBENCH_PLUGIN_DIR %s", file, chosen);
    }
    if (!own_folder(folder, sizeof folder)) return ab_fail(AB_UNAVAILABLE, "/proc/self/exe: unreadable");
    static const char *const places[] = {"", "/../lib/ampbench"};
    for (size_t i = 0; i < AB_COUNT_OF(places); i++) {
        AB_TRY(ab_text_path("/proc/self/exe", found, sizeof found, "%s%s/%s", folder, places[i], file));
        if (access(found, R_OK) == 0) return AB_OK;
    }
    return ab_fail(AB_UNAVAILABLE, "%s (no %s in %s or ../lib/ampbench)", missing, file, folder);
}

ab_status ab_cuda_plugin(int *devices, const ab_plugin **plugin) {
    const char *path;
    AB_TRY(ab_plugin_find("libampbench_cuda.so", "this build has no CUDA backend", &path));
    AB_TRY(ab_cuda_driver_check("libcuda.so.1", devices));
    return ab_plugin_load(path, plugin);
}

ab_status ab_cuda_open(int index, const ab_device **device) {
    int devices;
    const ab_plugin *plugin;
    AB_TRY(ab_cuda_plugin(&devices, &plugin));
    if (index >= devices)
        return ab_fail(AB_UNAVAILABLE, "there is no GPU %d, the driver finds %d", index, devices);
    return plugin->open(index, device);
}
