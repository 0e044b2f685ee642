/* `ampbench env`: this machine and build, as a result records it. */
#include "bench/cmd/cmd.h"
#include "bench/run/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_cmd_env(int argc, char **argv) {
    if (argc > 1 && ab_is_help(argv[1])) {
        puts("usage: ampbench env\n\nPrints the build and the machine as JSON, exactly what a result "
             "document records of them.");
        return AB_OK;
    }
    if (argc > 1) return ab_fail(AB_USAGE, "env takes no arguments, found '%s'", argv[1]);
    cJSON *document = cJSON_CreateObject();
    cJSON_AddItemToObject(document, "generator", ab_environment_generator());
    cJSON_AddItemToObject(document, "environment", ab_environment_machine());
    char *text = cJSON_Print(document);
    cJSON_Delete(document);
    if (!text) return ab_fail(AB_NO_MEMORY, "env: out of memory");
    puts(text);
    free(text);
    return AB_OK;
}
