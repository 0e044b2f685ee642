/* A fixed loss scale, apex's way: gradients are unscaled but never looked at, and no step is ever skipped. */
#include "bench/amp/scaler.h"

static bool update(ab_scaler *scaler, bool overflow) {
    (void)overflow;
    scaler->unskipped++;
    return false;
}

extern const ab_scaler_kind ab_scaler_fixed;
const ab_scaler_kind ab_scaler_fixed = {
    .name = "fixed",
    .text = "constant; never skips (apex static loss scale)",
    .checks = false,
    .defaults = {.init = 1.0},
    .update = update,
};
