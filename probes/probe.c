/* The list of probes. */
#include "probes/probe.h"

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
