/* apex's older dynamic loss scale (apex/fp16_utils/loss_scaler.py, class DynamicLossScaler): the window
 * counts from the last overflow and not from the last change, there is a floor of 1 and no cap. Python
 * numbers: with an int factor the scale is an unbounded int, and an overflow at a scale above 2^1024
 * raises. */
#include "bench/amp/scaler/since_overflow.h"

static const ab_scaler_key keys[] = {
    [AB_GROWTH_INIT] = {"init", "init_scale", "first scale", AB_SCALER_REAL, 0x1p32, 0, 0x1p53, true, true},
    [AB_GROWTH_FACTOR] = {"factor", "scale_factor",
                          "growth, and division by it on overflow; an int (2) counts without "
                          "rounding, a float (2.0) may reach infinity",
                          AB_SCALER_REAL, 2, 0, 0x1p31, true, false},
    [AB_GROWTH_WINDOW] = {"window", "scale_window", AB_GROWTH_WINDOW_TEXT, AB_SCALER_INTEGER, 1000, 1, 0x1p53,
                          false, true},
};
static const char *const states[] = {
    [AB_GROWTH_COUNT] = "since_overflow", [AB_GROWTH_BASE] = "int_base", [AB_GROWTH_POWER] = "int_power"};

static const ab_scaler_fault too_large = {
    "int_too_large", "the scale is a Python int above every float; dividing it raises OverflowError", true};

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    if (seen->overflow && ab_python_scale_too_large(scaler)) return (ab_scaler_outcome){true, &too_large};
    if (seen->overflow)
        ab_python_scale_lower(scaler, scaler->scale / scaler->config.value[AB_GROWTH_FACTOR]);
    else if (ab_growth_window_ends(scaler))
        ab_python_scale_grow(scaler);
    scaler->state[AB_GROWTH_COUNT]++;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

extern const ab_scaler_kind ab_scaler_apex_legacy;
const ab_scaler_kind ab_scaler_apex_legacy = {
    .name = "apex-legacy",
    .origin = "apex/fp16_utils/loss_scaler.py, DynamicLossScaler",
    .text = "starts at 2^32, window 1000 counted from the last overflow, floor 1, no cap",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .python = 1u << AB_GROWTH_INIT | 1u << AB_GROWTH_FACTOR,
    .start = ab_python_scale_start,
    .update = update,
    .steps_until_change = ab_growth_steps_until_change,
    .counters = 1u << AB_GROWTH_COUNT,
};
