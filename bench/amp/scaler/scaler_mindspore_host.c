/* MindSpore's DynamicLossScaleManager.update_loss_scale (train/loss_scale_manager.py): Python numbers, a
 * backoff multiplies by 1/factor, floor 1, no cap; more than 1,000 overflows in a row raise. With int
 * arguments, which are the default, the scale is an int until the first overflow. */
#include "bench/amp/scaler/since_overflow.h"

enum { BAD = AB_GROWTH_STATES };
enum { BAD_MOST = 1000 };

static const ab_scaler_key keys[] = {
    [AB_GROWTH_INIT] = {"init", "init_loss_scale", "first scale", AB_SCALER_REAL, 0x1p24, 1, 0x1p53, false,
                        true},
    [AB_GROWTH_FACTOR] = {"factor", "scale_factor", "growth, and the reciprocal of a backoff", AB_SCALER_REAL,
                          2, 0, 0x1p31, true, true},
    [AB_GROWTH_WINDOW] = {"window", "scale_window", AB_GROWTH_WINDOW_TEXT, AB_SCALER_INTEGER, 2000, 1, 0x1p53,
                          false, true},
};
static const char *const states[] = {[AB_GROWTH_COUNT] = "since_overflow",
                                     [AB_GROWTH_BASE] = "int_base",
                                     [AB_GROWTH_POWER] = "int_power",
                                     [BAD] = "bad_steps"};

static const ab_scaler_fault too_large = {
    "int_too_large",
    "the scale is a Python int above every float; multiplying it by 1/factor raises OverflowError", true};
static const ab_scaler_fault too_many = {"overflow_limit",
                                         "more than 1000 overflows in a row raise RuntimeError", true};

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double *state = scaler->state;
    if (seen->overflow && ab_python_scale_too_large(scaler)) return (ab_scaler_outcome){true, &too_large};
    if (seen->overflow) {
        ab_python_scale_lower(scaler, scaler->scale * (1 / scaler->config.value[AB_GROWTH_FACTOR]));
        state[BAD]++;
        if (state[BAD] > BAD_MOST) return (ab_scaler_outcome){true, &too_many};
    } else {
        if (ab_growth_window_ends(scaler)) ab_python_scale_grow(scaler);
        state[BAD] = 0;
    }
    state[AB_GROWTH_COUNT]++;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

extern const ab_scaler_kind ab_scaler_mindspore_host;
const ab_scaler_kind ab_scaler_mindspore_host = {
    .name = "mindspore-host",
    .origin = "mindspore.amp.DynamicLossScaleManager.update_loss_scale",
    .text =
        "starts at 2^24, window 2000 from the last overflow, floor 1; raises after 1001 overflows in a row",
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
