/* Probes of libampprobe made and freed. */
#define _GNU_SOURCE
#include "probes/lib/new.h"

#include "kernels/core/text.h"
#include "probes/lib/device.h"
#include "probes/lib/handle.h"
#include "probes/lib/steps.h"
#include "probes/lib/things.h"

#include <stdlib.h>
#include <unistd.h>

/* The path from the root: the process may change its folder. */
static char *whole_path(const char *path) {
    char *folder = path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *whole = path[0] == '/' || !folder ? ab_text_new("%s", path) : ab_text_new("%s/%s", folder, path);
    free(folder);
    return whole;
}

void ab_lib_free(ampprobe *p) {
    if (!p) return;
    ab_lib_things_free(p);
    ab_lib_config_free(&p->config);
    for (int64_t i = 0; i < p->notes && i < AB_LIB_NOTES; i++) free(p->note[i]);
    for (int32_t i = 0; i < p->flights; i++) ab_lib_device_end(&p->flight[i], false);
    free(p->flight);
    free(p->moves);
    free(p->course);
    free(p->facts);
    free(p->buffer);
    free(p->path);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

ab_status ab_lib_new(const char *path, ampprobe **probe) {
    ampprobe *p = calloc(1, sizeof *p);
    *probe = p;
    if (!p) return ab_fail(AB_NO_MEMORY, "%s: out of memory for a probe", path);
    pthread_mutex_init(&p->lock, NULL);
    p->owner = getpid();
    ab_lib_config_init(&p->config);
    p->path = whole_path(path);
    p->course = calloc(1, sizeof *p->course);
    p->facts = calloc(1, sizeof *p->facts);
    if (!p->path || !p->course || !p->facts)
        return ab_fail(AB_NO_MEMORY, "%s: out of memory for a probe", path);
    ab_lib_course_begin(p->course);
    return ab_range_find_bins(p->config.half, &p->bins);
}
