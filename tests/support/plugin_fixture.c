/* Shared objects that are wrong in one way each, for the loader's tests. CMake compiles this file once for
 * each FIXTURE_...; none of them is a device, and none of them can be opened as one. */
#include "kernels/backend/backend_layout.h"
#include "kernels/core/plugin.h"

const ab_plugin *ab_backend_v1(const ab_plugin_host *host);
int cuInit(unsigned flags);
int cuDeviceGetCount(int *devices);
int fixture_is_here(void);
int fixture_is_here(void) { return 1; }

#if defined(FIXTURE_ABI) || defined(FIXTURE_BACKEND) || defined(FIXTURE_NO_DEVICE) ||                        \
    defined(FIXTURE_DECLINES)
static const ab_plugin_host *program;

static ab_status open_nothing(int index, const ab_device **device) {
    (void)index;
    (void)device;
    program->fail(AB_UNAVAILABLE, "the fixture has no device");
    return AB_UNAVAILABLE;
}

#if defined(FIXTURE_BACKEND)
static const ab_backend backend = {.abi = AB_DEVICE_ABI, .layout = ab_backend_layout, .kind = "fixture"};
static const ab_device table = {.abi = AB_DEVICE_ABI, .name = "fixture", .backend = &backend};

static ab_status open_device(int index, const ab_device **device) {
    *device = &table;
    return index == 0 ? AB_OK : open_nothing(index, device);
}
#endif

const ab_plugin *ab_backend_v1(const ab_plugin_host *host) {
    static ab_plugin plugin = {.abi = AB_DEVICE_ABI, .open = open_nothing};
    program = host;
    plugin.device_layout = ab_device_layout();
#if defined(FIXTURE_ABI)
    plugin.abi = AB_DEVICE_ABI + 1;
#elif defined(FIXTURE_BACKEND)
    plugin.open = open_device;
#elif defined(FIXTURE_DECLINES)
    return host->abi > 0 ? NULL : &plugin;
#endif
    return &plugin;
}
#endif

#if defined(FIXTURE_DRIVER)
int cuInit(unsigned flags) { return flags == 0 ? FIXTURE_DRIVER : 1; }
int cuDeviceGetCount(int *devices) {
    *devices = FIXTURE_DEVICES;
    return 0;
}
#endif
