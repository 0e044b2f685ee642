/* Activations relative to the half format's range: the output of every op before it is cast. */
#include "probes/range.h"

static ab_status create(const ab_probe_setup *setup, void **state) {
    return ab_ranges_create("activations", setup, AB_SEES_ACTIVATIONS, state);
}

static void report(void *state, ab_probe_sink *sink) {
    ab_ranges_report(state, "activations", AB_SEES_ACTIVATIONS, sink);
}

extern const ab_probe_kind ab_probe_activations;
const ab_probe_kind ab_probe_activations = {
    .name = "activations",
    .text = "outputs of the ops against the half format's range",
    .standard = false,
    .roles = AB_SEES_ACTIVATIONS,
    .create = create,
    .destroy = ab_ranges_destroy,
    .see = ab_ranges_observe,
    .count = ab_ranges_count,
    .step_end = ab_ranges_step_end,
    .report = report,
};
