/* Graphcore's automatic loss scaling (popart: willow/src/popx/op/lossscaleupdatex.cpp): every `period` steps,
 * halve if the share of scaled gradient elements above edge * 65504 exceeds `proportion`, else double. There
 * is no dead band: the scale changes every period. No step is skipped, and elements beyond the largest fp16
 * number count as above the edge. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, EDGE, PROPORTION, PERIOD };
enum { STEP, UPPER, LOWER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "lossScaling", "first scale (the optimizer's lossScaling)", AB_SCALER_REAL, 1, 0,
              0x1p128, true, false},
    [EDGE] = {"edge", "binEdgeLocation", "the bin's edge as a share of 65504", AB_SCALER_REAL, 0.125, 0, 1,
              false, false},
    [PROPORTION] = {"proportion", "thresholdUpperCountProportion",
                    "share of elements above the edge that halves", AB_SCALER_REAL, 1e-7, 0, 1, false, false},
    [PERIOD] = {"period", "updatePeriod", "steps between updates", AB_SCALER_INTEGER, 1, 1, 0x1p31, false,
                true},
};
static const char *const states[] = {
    [STEP] = "step_in_period", [UPPER] = "upper_count", [LOWER] = "lower_count"};

static void start(ab_scaler *scaler) { scaler->scale = ab_fp32(scaler->config.value[INIT]); }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    double *state = scaler->state;
    ab_scaler_outcome outcome = {.skip = false};
    state[UPPER] += seen->upper;
    state[LOWER] += seen->lower;
    if (++state[STEP] < value[PERIOD]) return outcome;
    float proportion = (float)value[PROPORTION], ratio = proportion / (1 - proportion);
    bool high = (float)state[UPPER] > ratio * (float)state[LOWER];
    scaler->scale = ab_fp32(scaler->scale * (high ? 0.5 : 2));
    state[STEP] = state[UPPER] = state[LOWER] = 0;
    return outcome;
}

extern const ab_scaler_kind ab_scaler_graphcore_als;
const ab_scaler_kind ab_scaler_graphcore_als = {
    .name = "graphcore-als",
    .origin = "graphcore/popart, automaticLossScalingSettings",
    .text = "every step: halve if more than 1e-7 of the gradients lie above 8188, else double; never skips",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .sees = AB_SEES_COUNTS,
    .fp32 = true,
    .start = start,
    .update = update,
};
