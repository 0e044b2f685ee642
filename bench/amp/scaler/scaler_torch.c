/* torch.amp.GradScaler (torch/amp/grad_scaler.py and the _amp_update_scale_ kernels): an fp32 scale; products
 * with the factors in double, rounded to fp32; growth to infinity is suppressed, but the counter restarts. No
 * floor: after 144 overflows in a row from 2^16 the reciprocal is infinite and steps are taken with infinite
 * gradients, after 166 the scale is 0. As in the original, windows and backoff factors are not checked. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, GROWTH, BACKOFF, WINDOW };
enum { TRACKER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "init_scale", "first scale", AB_SCALER_REAL, 0x1p16, 0, 0x1p128, true, false},
    [GROWTH] = {"growth", "growth_factor", "growth", AB_SCALER_REAL, 2, 1, HUGE_VAL, true, false},
    [BACKOFF] = {"backoff", "backoff_factor", "backoff; 0 and below are accepted, as torch does",
                 AB_SCALER_REAL, 0.5, -HUGE_VAL, 1, true, false},
    [WINDOW] = {"window", "growth_interval",
                "clean steps in a row before the scale grows; 0 and below: never", AB_SCALER_INTEGER, 2000,
                -0x1p31, 0x1p31, true, true},
};
static const char *const states[] = {[TRACKER] = "growth_tracker"};

static void start(ab_scaler *scaler) { scaler->scale = ab_fp32(scaler->config.value[INIT]); }

static void clean(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    if (++scaler->state[TRACKER] != value[WINDOW]) return;
    double grown = ab_fp32(scaler->scale * value[GROWTH]);
    if (isfinite(grown)) scaler->scale = grown;
    scaler->state[TRACKER] = 0;
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    if (seen->overflow) {
        scaler->scale = ab_fp32(scaler->scale * scaler->config.value[BACKOFF]);
        scaler->state[TRACKER] = 0;
    } else {
        clean(scaler);
    }
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - scaler->state[TRACKER] - 1;
    return left >= 0 ? (int64_t)left : INT64_MAX;
}

extern const ab_scaler_kind ab_scaler_torch;
const ab_scaler_kind ab_scaler_torch = {
    .name = "torch",
    .origin = "torch.amp.GradScaler, 2.11",
    .text = "starts at 2^16, window 2000, no floor, no cap; growth to infinity is refused",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << TRACKER,
};
