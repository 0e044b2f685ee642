/* A fixed loss scale whose overflowed steps are skipped, as loops do that check the gradients by hand: "if
 * all are finite: optimizer.step()". Written as a number and ":skip" (128:skip). The scale never changes. */
#include "bench/amp/scaler/fixed_scale.h"

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double *unskipped = &scaler->state[AB_FIXED_UNSKIPPED];
    *unskipped = seen->overflow ? 0 : *unskipped + 1;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

extern const ab_scaler_kind ab_scaler_fixed_skip;
const ab_scaler_kind ab_scaler_fixed_skip = {
    .name = "fixed-skip",
    .origin = "training loops that check gradients by hand; written NUMBER:skip",
    .text = "constant; skips steps that overflow",
    .update = update,
    AB_FIXED_SCALE,
};
