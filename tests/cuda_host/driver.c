/* A libcuda.so.1 for the emulation: one device, so that the program opens the plugin. */
int cuInit(unsigned flags);
int cuDeviceGetCount(int *devices);

int cuInit(unsigned flags) { return flags ? 1 : 0; }

int cuDeviceGetCount(int *devices) {
    *devices = 1;
    return 0;
}
