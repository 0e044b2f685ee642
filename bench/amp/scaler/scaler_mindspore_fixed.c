/* MindSpore's FixedLossScaleManager (train/loss_scale_manager.py). With drop_overflow_update (the default)
 * the training cell unscales, checks and skips. Without it nothing is checked, and only the optimizer
 * unscales, by its own loss_scale, which defaults to 1: with the default every update is `init` times too
 * large. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, DROP, OPTIMIZER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "loss_scale", "the scale", AB_SCALER_REAL, 128, 1, 0x1p127, false, false},
    [DROP] = {"drop_overflow_update", NULL, "look at the gradients, unscale them, skip steps that overflow",
              AB_SCALER_BOOL, 1, 0, 1, false, false},
    [OPTIMIZER] = {"optimizer_loss_scale", NULL,
                   "the optimizer's own loss_scale, by which it divides gradients", AB_SCALER_REAL, 1, 0,
                   0x1p127, true, false},
};

static const ab_scaler_fault left_scaled = {
    "left_scaled",
    "drop_overflow_update is False and the optimizer's loss_scale is not the manager's: gradients are "
    "divided by the wrong number",
    false};

static bool checks(const ab_scaler *scaler) { return scaler->config.value[DROP] != 0; }

static double divisor(const ab_scaler *scaler) {
    const double *value = scaler->config.value;
    return value[DROP] != 0 ? value[INIT] * value[OPTIMIZER] : value[OPTIMIZER];
}

static void start(ab_scaler *scaler) { scaler->scale = scaler->config.value[INIT]; }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    bool wrong = divisor(scaler) != scaler->scale;
    return (ab_scaler_outcome){checks(scaler) && seen->overflow, wrong ? &left_scaled : NULL};
}

extern const ab_scaler_kind ab_scaler_mindspore_fixed;
const ab_scaler_kind ab_scaler_mindspore_fixed = {
    .name = "mindspore-fixed",
    .origin = "mindspore.amp.FixedLossScaleManager",
    .text =
        "constant 128; skips overflows, or (drop_overflow_update=False) leaves unscaling to the optimizer",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .start = start,
    .update = update,
    .checks = checks,
    .divisor = divisor,
};
