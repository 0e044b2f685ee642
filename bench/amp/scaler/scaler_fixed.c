/* A fixed loss scale, as in apex: gradients are unscaled but not checked, and no step is skipped. */
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
    (void)seen;
    scaler->state[UNSKIPPED]++;
    return (ab_scaler_outcome){.skip = false};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    (void)scaler;
    return INT64_MAX;
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
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << UNSKIPPED,
    .checks = checks,
};
