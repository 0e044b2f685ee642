/* A fixed loss scale whose overflowed steps are skipped, as loops do that check the gradients by hand: "if
 * all are finite: optimizer.step()". Written as a number and ":skip" (128:skip). The scale never changes. */
#include "bench/amp/scaler/scaler.h"

#include <float.h>

enum { INIT };
enum { UNSKIPPED };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "loss_scale", "the scale", AB_SCALER_REAL, 1, 0x1p-149, (double)FLT_MAX, false, false},
};
static const char *const states[] = {[UNSKIPPED] = "unskipped"};

static void start(ab_scaler *scaler) { scaler->scale = scaler->config.value[INIT]; }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    scaler->state[UNSKIPPED] = seen->overflow ? 0 : scaler->state[UNSKIPPED] + 1;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    (void)scaler;
    return INT64_MAX;
}

extern const ab_scaler_kind ab_scaler_fixed_skip;
const ab_scaler_kind ab_scaler_fixed_skip = {
    .name = "fixed-skip",
    .origin = "training loops that check gradients by hand; written NUMBER:skip",
    .text = "constant; skips steps that overflow",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << UNSKIPPED,
};
