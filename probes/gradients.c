/* Gradients relative to the half format's range: of weights and activations at the current loss scale, and of
 * weights also unscaled, as passed to the optimizer. */
#include "probes/range.h"

static ab_status create(const ab_probe_setup *setup, void **state) {
    return ab_ranges_create("gradients", setup, AB_SEES_GRADIENTS | AB_SEES_UNSCALED_GRADIENTS, state);
}

static void report(void *state, ab_probe_sink *sink) {
    const ab_ranges *ranges = state;
    ab_ranges_report_head(ranges, sink);
    ab_ranges_report(ranges, "tensors", AB_SEES_GRADIENTS, sink);
    ab_ranges_report(ranges, "unscaled_gradients", AB_SEES_UNSCALED_GRADIENTS, sink);
}

extern const ab_probe_kind ab_probe_gradients;
const ab_probe_kind ab_probe_gradients = {
    .name = "gradients",
    .text = "weight and activation gradients against the half format's range",
    .standard = true,
    .roles = AB_SEES_GRADIENTS | AB_SEES_UNSCALED_GRADIENTS,
    .create = create,
    .destroy = ab_ranges_destroy,
    .see = ab_ranges_observe,
    .count = ab_ranges_count,
    .step_end = ab_ranges_step_end,
    .report = report,
};
