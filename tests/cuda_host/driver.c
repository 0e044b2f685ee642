/* A libcuda.so.1 for the emulation: as many devices as AMPBENCH_EMULATED has ("devices=2"), else one, so that
 * the program opens the plugin. */
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *devices);

int cuInit(unsigned flags) { return flags ? 1 : 0; }

int cuDeviceGetCount(int *devices) {
    static const char key[] = "devices=";
    const char *text = getenv("AMPBENCH_EMULATED"), *found = text ? strstr(text, key) : NULL;
    *devices = found ? atoi(found + strlen(key)) : 1;
    return 0;
}
