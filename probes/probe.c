/* The list of probes. */
#include "probes/probe.h"

#include "kernels/core/text.h"

#include <string.h>

#define AB_PROBE(name) extern const ab_probe_kind ab_probe_##name;
#include "probes/probes.def"
#undef AB_PROBE

static const ab_probe_kind *const kinds[] = {
#define AB_PROBE(name) &ab_probe_##name,
#include "probes/probes.def"
#undef AB_PROBE
};

int ab_probe_count(void) { return (int)AB_COUNT_OF(kinds); }
const ab_probe_kind *ab_probe_at(int i) { return kinds[i]; }

uint64_t ab_probes_all(void) { return UINT64_MAX >> (AB_MAX_PROBES - ab_probe_count()); }

uint64_t ab_probes_standard(void) {
    uint64_t set = 0;
    for (int i = 0; i < ab_probe_count(); i++) set |= (uint64_t)kinds[i]->standard << i;
    return set;
}

ab_status ab_probe_find(const char *name, int *index) {
    const char *names[AB_COUNT_OF(kinds)];
    for (int i = 0; i < ab_probe_count(); i++) {
        names[i] = kinds[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *index = i;
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, ab_probe_count());
    return ab_fail(AB_USAGE, "no probe is called '%s'%s%s%s (see `ampbench list probes`)", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}
