/* A probe as a newcomer would add it: how many values it saw. */
#include "probes/probe.h"

#include <stdlib.h>

static ab_status create(const ab_probe_setup *setup, void **state) {
    (void)setup;
    *state = calloc(1, sizeof(int64_t));
    return *state ? AB_OK : ab_fail(AB_NO_MEMORY, "probe added_probe: out of memory");
}

static void see(void *state, int tensor, int thread, const float *values, int64_t n) {
    (void)tensor, (void)values;
    if (thread == 0) *(int64_t *)state += n;
}

static void report(void *state, ab_probe_sink *sink) {
    sink->integer(sink, "added_probe", *(int64_t *)state);
}

extern const ab_probe_kind ab_probe_added_probe;
const ab_probe_kind ab_probe_added_probe = {
    .name = "added_probe",
    .text = "counts what it sees",
    .roles = AB_SEES_ACTIVATIONS,
    .create = create,
    .destroy = free,
    .see = see,
    .report = report,
};
