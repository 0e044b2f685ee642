/* `ampbench env`: this machine and build, as recorded in a result, and the device that a run would choose. */
#include "bench/cmd/cmd.h"
#include "bench/run/environment.h"
#include "kernels/core/device.h"
#include "reports/record/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_fact(void *device, const char *key, const char *text) {
    if (text)
        cJSON_AddStringToObject(device, key, text);
    else
        cJSON_AddNullToObject(device, key);
}

/* The choice of --device auto, and why it is not the GPU, or a description of the GPU. */
static cJSON *device_part(void) {
    const ab_device *device;
    const char *why = NULL;
    cJSON *object = cJSON_CreateObject();
    if (ab_device_open("auto", &device, &why) != AB_OK) return object;
    cJSON_AddStringToObject(object, "auto", device->name);
    add_fact(object, "why_not_gpu", why);
    if (device->facts) device->facts(add_fact, object);
    return object;
}

ab_status ab_cmd_env(int argc, char **argv) {
    if (argc > 1 && ab_is_help(argv[1])) {
        puts("usage: ampbench env\n\nPrints the build and the machine as JSON, exactly what a result "
             "document records of them,\nand the device that --device auto chooses: a GPU's libraries, "
             "clocks and "
             "limits, or why there is none.");
        return AB_OK;
    }
    if (argc > 1) return ab_fail(AB_USAGE, "env takes no arguments, found '%s'", argv[1]);
    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "generator", ab_environment_generator());
    cJSON_AddItemToObject(document, "environment", ab_environment_machine());
    cJSON_AddItemToObject(document, "device", device_part());
    ab_json_print(document, stdout);
    cJSON_Delete(document);
    return AB_OK;
}
