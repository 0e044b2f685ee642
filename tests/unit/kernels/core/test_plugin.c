/* Opening plugins: everything that can be wrong with one, or with the driver before it, ends in
 * AB_UNAVAILABLE and one line that says what. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/backend/backend.h"
#include "kernels/core/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURE(name) AB_PLUGIN_DIR "/" name ".so"

static void load_fails(const char *path, const char *words) {
    const ab_plugin *plugin;
    assert_int_equal(ab_plugin_load(path, &plugin), AB_UNAVAILABLE);
    assert_null(plugin);
    if (!strstr(ab_error_message(), words)) fail_msg("'%s' does not say '%s'", ab_error_message(), words);
    assert_null(strchr(ab_error_message(), '\n'));
}

static void unfit_plugins_are_refused_with_the_reason(void **state) {
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "interface %d, expected %d", AB_DEVICE_ABI + 1, AB_DEVICE_ABI);
    load_fails(AB_PLUGIN_DIR "/none.so", "cannot open shared object file");
    load_fails(AB_SOURCE_DIR "/tests/unit/kernels/core/test_plugin.c", "invalid ELF header");
    load_fails(FIXTURE("plugin_no_entry"), "has no function ab_backend_v1");
    load_fails(FIXTURE("plugin_abi"), text);
    load_fails(FIXTURE("plugin_swapped_device"), "another version of ampbench");
    load_fails(FIXTURE("plugin_declines"), "another version of ampbench");
}

static void a_plugins_own_reason_reaches_the_user(void **state) {
    (void)state;
    const ab_plugin *plugin;
    const ab_device *device = NULL;
    assert_int_equal(ab_plugin_load(FIXTURE("plugin_no_device"), &plugin), AB_OK);
    assert_int_equal(plugin->open(0, &device), AB_UNAVAILABLE);
    assert_string_equal(ab_error_message(), "the fixture has no device");
}

/* The sizes of all structs are those of this program. */
static void a_backend_with_two_fields_swapped_is_refused(void **state) {
    (void)state;
    const ab_plugin *plugin;
    const ab_device *device = NULL;
    assert_int_equal(ab_plugin_load(FIXTURE("plugin_backend"), &plugin), AB_OK);
    assert_int_equal(plugin->open(0, &device), AB_OK);
    assert_int_equal(ab_backend_check(device->backend), AB_OK);
    assert_int_equal(ab_plugin_load(FIXTURE("plugin_swapped_backend"), &plugin), AB_OK);
    assert_int_equal(plugin->open(0, &device), AB_OK);
    assert_int_equal(ab_backend_check(device->backend), AB_UNAVAILABLE);
    assert_string_equal(ab_error_message(), "the fixture backend was built for another version of ampbench");
}

static void driver_fails(const char *library, const char *words) {
    int devices = -1;
    assert_int_equal(ab_cuda_driver_check(library, &devices), AB_UNAVAILABLE);
    assert_int_equal(devices, 0);
    if (!strstr(ab_error_message(), words)) fail_msg("'%s' does not say '%s'", ab_error_message(), words);
}

static void a_driver_that_finds_no_gpu_says_so(void **state) {
    (void)state;
    driver_fails("libampbench-none.so.1", "no NVIDIA driver (libampbench-none.so.1: cannot open");
    driver_fails(FIXTURE("plugin_no_entry"), "it has no cuInit");
    driver_fails(FIXTURE("driver_no_gpu"), "finds no GPU");
    driver_fails(FIXTURE("driver_zero"), "finds no GPU");
    driver_fails(FIXTURE("driver_stub"), "the toolkit's stub");
    driver_fails(FIXTURE("driver_broken"), "error 999");
    int devices = 0;
    assert_int_equal(ab_cuda_driver_check(FIXTURE("driver_works"), &devices), AB_OK);
    assert_int_equal(devices, 3);
}

static void plugins_are_looked_for_where_the_user_says(void **state) {
    (void)state;
    const char *path;
    assert_int_equal(setenv("AMPBENCH_PLUGIN_DIR", AB_PLUGIN_DIR, 1), 0);
    assert_int_equal(ab_plugin_find("plugin_abi.so", "this build has no X", &path), AB_OK);
    assert_string_equal(path, FIXTURE("plugin_abi"));
    assert_int_equal(ab_plugin_find("none.so", "this build has no X", &path), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "no none.so in AMPBENCH_PLUGIN_DIR"));
    assert_int_equal(unsetenv("AMPBENCH_PLUGIN_DIR"), 0);
    assert_int_equal(ab_plugin_find("none.so", "this build has no X", &path), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "this build has no X (no none.so in /"));
}

/* A folder without a plugin, whatever the build and the machine have. */
static void without_a_plugin_auto_takes_the_cpu_and_says_why(void **state) {
    (void)state;
    const ab_device *device = NULL;
    const char *why = NULL;
    assert_int_equal(setenv("AMPBENCH_PLUGIN_DIR", AB_PLUGIN_DIR, 1), 0);
    assert_int_equal(ab_device_open("auto", &device, &why), AB_OK);
    assert_ptr_equal(device, &ab_device_cpu);
    assert_non_null(strstr(why, "libampbench_cuda.so"));
    assert_int_equal(ab_device_open("cuda:1", &device, NULL), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "--device cuda:1: there is no libampbench_cuda.so in"));
    assert_int_equal(unsetenv("AMPBENCH_PLUGIN_DIR"), 0);
}

/* The real plugin, where this build has one: it loads with all its libraries, fits, and says why it has no
 * device. */
static void the_built_plugin_loads_and_gives_its_reason(void **state) {
    (void)state;
    const ab_plugin *plugin;
    const ab_device *device = NULL;
    int devices;
    if (access(AB_BUILT_PLUGIN, R_OK) != 0) skip();
    if (ab_plugin_load(AB_BUILT_PLUGIN, &plugin) != AB_OK) {
        /* built against libraries that are not here: the loader's words */
        assert_non_null(strstr(ab_error_message(), "cannot open shared object file"));
        skip();
    }
    assert_int_equal(plugin->open(1 << 20, &device), AB_UNAVAILABLE);
    if (ab_cuda_driver_check("libcuda.so.1", &devices) == AB_OK)
        skip(); /* a GPU: the tests labelled gpu say more */
    assert_int_equal(plugin->open(0, &device), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "CUDA does not start: "));
    assert_null(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(unfit_plugins_are_refused_with_the_reason),
                                       cmocka_unit_test(a_plugins_own_reason_reaches_the_user),
                                       cmocka_unit_test(a_backend_with_two_fields_swapped_is_refused),
                                       cmocka_unit_test(a_driver_that_finds_no_gpu_says_so),
                                       cmocka_unit_test(plugins_are_looked_for_where_the_user_says),
                                       cmocka_unit_test(without_a_plugin_auto_takes_the_cpu_and_says_why),
                                       cmocka_unit_test(the_built_plugin_loads_and_gives_its_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
