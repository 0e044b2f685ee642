/* A fixed loss scale, as in apex: gradients are unscaled but not checked, and no step is skipped. */
#include "bench/amp/scaler/fixed_scale.h"

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    (void)seen;
    scaler->state[AB_FIXED_UNSKIPPED]++;
    return (ab_scaler_outcome){.skip = false};
}

static bool checks(const ab_scaler *scaler) {
    (void)scaler;
    return false;
}

extern const ab_scaler_kind ab_scaler_fixed;
const ab_scaler_kind ab_scaler_fixed = {
    .name = "fixed",
    .origin = "apex/amp/scaler.py, static",
    .text = "constant; never looks, never skips",
    .update = update,
    .checks = checks,
    AB_FIXED_SCALE,
};
