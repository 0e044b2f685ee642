/* Megatron-core's DynamicGradScaler (megatron/core/optimizer/grad_scaler.py): fp32, factors rounded to fp32;
 * hysteresis (tolerated overflows) that only growth resets, although its documentation says consecutive
 * overflows; growth may reach infinity, and a window that is not an integer never ends. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, MIN, GROWTH, BACKOFF, WINDOW, HYSTERESIS };
enum { TRACKER, CREDIT };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "initial_scale", "first scale (--initial-loss-scale)", AB_SCALER_REAL, 0x1p32, 0,
              0x1p128, true, true},
    [MIN] = {"min", "min_scale", "floor (--min-loss-scale)", AB_SCALER_REAL, 1, 0, 0x1p128, true, false},
    [GROWTH] = {"growth", "growth_factor", "growth", AB_SCALER_REAL, 2, 1, HUGE_VAL, true, false},
    [BACKOFF] = {"backoff", "backoff_factor", "backoff", AB_SCALER_REAL, 0.5, 0, 1, true, false},
    [WINDOW] = {"window", "growth_interval",
                "clean steps in a row before the scale grows (--loss-scale-window)", AB_SCALER_REAL, 1000, 0,
                0x1p53, true, true},
    [HYSTERESIS] = {"hysteresis", NULL, "overflows before the scale falls (--hysteresis)", AB_SCALER_INTEGER,
                    2, 1, 0x1p31, false, true},
};
static const char *const states[] = {[TRACKER] = "growth_tracker", [CREDIT] = "hysteresis_tracker"};
static ab_status check(const ab_scaler_config *config) {
    if (config->value[MIN] <= config->value[INIT]) return AB_OK;
    return ab_fail(AB_USAGE,
                   "loss scaler megatron: min %.9g is above init %.9g, which the original asserts against",
                   config->value[MIN], config->value[INIT]);
}

static void start(ab_scaler *scaler) {
    scaler->scale = ab_fp32(scaler->config.value[INIT]);
    scaler->state[CREDIT] = scaler->config.value[HYSTERESIS];
}

static double lowered(const ab_scaler *scaler) {
    const double *value = scaler->config.value;
    return fmax(ab_fp32(scaler->scale * ab_fp32(value[BACKOFF])), ab_fp32(value[MIN]));
}

static void overflowed(ab_scaler *scaler) {
    scaler->state[TRACKER] = 0;
    if (--scaler->state[CREDIT] > 0) return;
    scaler->scale = lowered(scaler);
}

static void clean(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    if (++scaler->state[TRACKER] != value[WINDOW]) return;
    scaler->state[TRACKER] = 0;
    scaler->state[CREDIT] = value[HYSTERESIS];
    scaler->scale = ab_fp32(scaler->scale * ab_fp32(value[GROWTH]));
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
    return left >= 0 && left == floor(left) ? (int64_t)left : INT64_MAX;
}

static int64_t overflows_until_change(const ab_scaler *scaler) {
    if (scaler->state[CREDIT] > 1) return (int64_t)scaler->state[CREDIT] - 1;
    return lowered(scaler) == scaler->scale ? INT64_MAX : 0;
}

extern const ab_scaler_kind ab_scaler_megatron;
const ab_scaler_kind ab_scaler_megatron = {
    .name = "megatron",
    .origin = "megatron/core/optimizer/grad_scaler.py, DynamicGradScaler, 0.16",
    .text = "starts at 2^32, window 1000, hysteresis 2 refilled by growth only, floor 1; may reach infinity",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .check = check,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << TRACKER,
    .overflows_until_change = overflows_until_change,
};
