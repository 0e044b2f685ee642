/* Weights relative to the half format's range, after the optimizer step. */
#include "probes/range.h"

static ab_status create(const ab_probe_setup *setup, void **state) {
    return ab_ranges_create("weights", setup, AB_SEES_WEIGHTS, state);
}

static void report(void *state, ab_probe_sink *sink) {
    ab_ranges_report(state, "weights", AB_SEES_WEIGHTS, sink);
}

extern const ab_probe_kind ab_probe_weights;
const ab_probe_kind ab_probe_weights = {
    .name = "weights",
    .text = "weights against the half format's range",
    .standard = false,
    .roles = AB_SEES_WEIGHTS,
    .create = create,
    .destroy = ab_ranges_destroy,
    .see = ab_ranges_observe,
    .count = ab_ranges_count,
    .step_end = ab_ranges_step_end,
    .report = report,
};
