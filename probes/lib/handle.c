/* The clock of a probe. */
#define _GNU_SOURCE
#include "probes/lib/handle.h"

#include <time.h>

double ab_lib_now(void) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
