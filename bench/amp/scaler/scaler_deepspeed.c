/* DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py), which the ZeRO optimizers use: hysteresis
 * (tolerated overflows) that only growth resets (or every clean step, if consecutive_hysteresis), a window
 * counted from the last overflow that is one step too long, and an exception when the scale is at its floor.
 * As in the original, gradients are unscaled with the updated scale: they are halved on a step that grows the
 * scale, unless they are clipped by norm. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, WINDOW, MIN, HYSTERESIS, CONSECUTIVE, RAISES };
enum { SINCE, CREDIT };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "initial_scale", "first scale (2 ** initial_scale_power)", AB_SCALER_REAL, 0x1p16, 0,
              HUGE_VAL, true, true},
    [WINDOW] = {"window", "loss_scale_window",
                "the scale doubles when this many steps and one, or a multiple and one, "
                "have passed since the last overflow",
                AB_SCALER_INTEGER, 1000, 1, 0x1p53, false, true},
    [MIN] = {"min", "min_loss_scale", "floor, where an overflow raises", AB_SCALER_REAL, 1, 0, HUGE_VAL, true,
             true},
    [HYSTERESIS] = {"hysteresis", "delayed_shift", "overflows before the scale falls; 0: never",
                    AB_SCALER_INTEGER, 2, 0, 0x1p31, false, true},
    [CONSECUTIVE] = {"consecutive", "consecutive_hysteresis", "every clean step refills the credit",
                     AB_SCALER_BOOL, 0, 0, 1, false, false},
    [RAISES] = {"raises", "raise_error_at_min_scale", "an overflow at the floor raises", AB_SCALER_BOOL, 1, 0,
                1, false, false},
};
static const char *const states[] = {[SINCE] = "since_overflow", [CREDIT] = "cur_hysteresis"};

static const ab_scaler_fault at_floor = {
    "at_floor", "an overflow while the loss scale is already at its minimum raises and ends the run", true};
static const ab_scaler_fault log_text = {
    "log_text_raises", "the scale is infinite and the log message converts it to an int: OverflowError",
    true};

static void start(ab_scaler *scaler) {
    scaler->scale = scaler->config.value[INIT];
    scaler->state[SINCE] = 1;
    scaler->state[CREDIT] = scaler->config.value[HYSTERESIS];
}

static const ab_scaler_fault *overflowed(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    double *state = scaler->state;
    bool falls = value[HYSTERESIS] == 1 || state[CREDIT] == 1;
    if (falls && value[RAISES] != 0 && scaler->scale == value[MIN]) return &at_floor;
    if (isinf(scaler->scale)) return &log_text;
    if (falls)
        scaler->scale = fmax(scaler->scale / 2, value[MIN]);
    else
        state[CREDIT]--;
    state[SINCE] = 1;
    return NULL;
}

static void clean(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    double *state = scaler->state, stable = state[SINCE] - 1;
    bool grows = stable > 0 && fmod(stable, value[WINDOW]) == 0;
    if (value[CONSECUTIVE] != 0 || grows) state[CREDIT] = value[HYSTERESIS];
    if (grows) scaler->scale *= 2;
    state[SINCE]++;
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    ab_scaler_outcome outcome = {.skip = seen->overflow};
    if (seen->overflow)
        outcome.fault = overflowed(scaler);
    else
        clean(scaler);
    return outcome;
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double window = scaler->config.value[WINDOW], stable = scaler->state[SINCE] - 1;
    double phase = fmod(stable, window);
    return (int64_t)(phase != 0 ? window - phase : stable == 0 ? 1 : 0);
}

extern const ab_scaler_kind ab_scaler_deepspeed;
const ab_scaler_kind ab_scaler_deepspeed = {
    .name = "deepspeed",
    .origin = "deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler (ZeRO), 0.19",
    .text = "starts at 2^16, window 1000 (+1 after an overflow), hysteresis 2, raises at the floor of 1",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .updates_first = true,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << SINCE,
};
