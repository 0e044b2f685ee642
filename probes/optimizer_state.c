/* Optimizer states (momentum; Adam's m and v) relative to the half format's range, after the optimizer
 * step. */
#include "probes/range.h"

static ab_status create(const ab_probe_setup *setup, void **state) {
    return ab_ranges_create("optimizer_state", setup, AB_SEES_OPTIMIZER_STATE, state);
}

static void report(void *state, ab_probe_sink *sink) {
    ab_ranges_report(state, "optimizer_state", AB_SEES_OPTIMIZER_STATE, sink);
}

extern const ab_probe_kind ab_probe_optimizer_state;
const ab_probe_kind ab_probe_optimizer_state = {
    .name = "optimizer_state",
    .text = "momentum, or Adam's m and v, against the half format's range",
    .standard = false,
    .roles = AB_SEES_OPTIMIZER_STATE,
    .create = create,
    .destroy = ab_ranges_destroy,
    .see = ab_ranges_observe,
    .count = ab_ranges_count,
    .step_end = ab_ranges_step_end,
    .report = report,
};
