/* apex's update_scale_hysteresis kernel (csrc/update_scale_hysteresis.cu): torch's rule plus hysteresis, a
 * number of tolerated overflows. Every clean step resets it, so only consecutive overflows use it up; the
 * step is skipped either way. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, GROWTH, BACKOFF, WINDOW, HYSTERESIS };
enum { TRACKER, CREDIT };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "current_scale", "first scale (the caller's; torch's default here)", AB_SCALER_REAL,
              0x1p16, 0, 0x1p128, true, false},
    [GROWTH] = {"growth", "growth_factor", "growth", AB_SCALER_REAL, 2, 0, HUGE_VAL, true, false},
    [BACKOFF] = {"backoff", "backoff_factor", "backoff", AB_SCALER_REAL, 0.5, -HUGE_VAL, HUGE_VAL, false,
                 false},
    [WINDOW] = {"window", "growth_interval", "clean steps in a row before the scale grows", AB_SCALER_INTEGER,
                2000, -0x1p31, 0x1p31, false, true},
    [HYSTERESIS] = {"hysteresis", NULL, "overflows in a row before the scale falls", AB_SCALER_INTEGER, 2,
                    -0x1p31, 0x1p31, false, true},
};
static const char *const states[] = {[TRACKER] = "growth_tracker", [CREDIT] = "hysteresis_tracker"};

static void start(ab_scaler *scaler) {
    scaler->scale = ab_fp32(scaler->config.value[INIT]);
    scaler->state[CREDIT] = scaler->config.value[HYSTERESIS];
}

static double lowered(const ab_scaler *scaler) {
    return ab_fp32(scaler->scale * scaler->config.value[BACKOFF]);
}

static void overflowed(ab_scaler *scaler) {
    double *state = scaler->state;
    state[CREDIT]--;
    state[TRACKER] = 0;
    if (state[CREDIT] <= 0) scaler->scale = lowered(scaler);
}

static void clean(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    double *state = scaler->state;
    state[CREDIT] = value[HYSTERESIS];
    state[TRACKER]++;
    if (state[TRACKER] != value[WINDOW]) return;
    double grown = ab_fp32(scaler->scale * value[GROWTH]);
    if (isfinite(grown)) scaler->scale = grown;
    state[TRACKER] = 0;
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    if (seen->overflow)
        overflowed(scaler);
    else
        clean(scaler);
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - scaler->state[TRACKER] - 1;
    return left >= 0 ? (int64_t)left : INT64_MAX;
}

static int64_t overflows_until_change(const ab_scaler *scaler) {
    const double scale = lowered(scaler);
    if (scaler->state[CREDIT] > 1) return (int64_t)scaler->state[CREDIT] - 1;
    return scale == scaler->scale || (isnan(scale) && isnan(scaler->scale)) ? INT64_MAX : 0;
}

extern const ab_scaler_kind ab_scaler_apex_hysteresis;
const ab_scaler_kind ab_scaler_apex_hysteresis = {
    .name = "apex-hysteresis",
    .origin = "apex/csrc/update_scale_hysteresis.cu",
    .text =
        "torch's rule, but the scale falls at the second overflow in a row; clean steps refill the credit",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << TRACKER,
    .overflows_until_change = overflows_until_change,
};
