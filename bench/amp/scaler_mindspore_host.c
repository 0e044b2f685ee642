/* MindSpore's DynamicLossScaleManager.update_loss_scale (train/loss_scale_manager.py): Python numbers, a backoff multiplies by
 * 1/factor, floor 1, no cap; more than 1,000 overflows in a row raise. With int arguments, which are the default, the scale
 * is an int until the first overflow. */
#include "bench/amp/python_int.h"
#include "bench/amp/scaler.h"

#include <math.h>

enum { INIT, FACTOR, WINDOW };
enum { SINCE, BAD, BASE, POWER };
enum { BAD_MOST = 1000 };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "init_loss_scale", "first scale", AB_SCALER_REAL, 0x1p24, 1, 0x1p53, false, true},
    [FACTOR] = {"factor", "scale_factor", "growth, and the reciprocal of a backoff", AB_SCALER_REAL, 2, 0,
                0x1p31, true, true},
    [WINDOW] = {"window", "scale_window",
                "the scale grows when this many steps, or a multiple, have passed since "
                "the last overflow",
                AB_SCALER_INTEGER, 2000, 1, 0x1p53, false, true},
};
static const char *const states[] = {
    [SINCE] = "since_overflow", [BAD] = "bad_steps", [BASE] = "int_base", [POWER] = "int_power"};

static const ab_scaler_fault too_large = {
    "int_too_large",
    "the scale is a Python int above every float; multiplying it by 1/factor raises OverflowError", true};
static const ab_scaler_fault too_many = {"overflow_limit",
                                         "more than 1000 overflows in a row raise RuntimeError", true};

static void start(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    scaler->scale = config->value[INIT];
    scaler->state[SINCE] = 1;
    if (config->integral >> INIT & 1u) scaler->state[BASE] = scaler->scale;
}

static void shrink(ab_scaler *scaler) {
    double *state = scaler->state, reduced = scaler->scale * (1 / scaler->config.value[FACTOR]);
    bool floor = reduced < 1; /* max(reduced, 1) gives the int 1 */
    scaler->scale = floor ? 1 : reduced;
    state[BASE] = floor;
    state[POWER] = 0;
    state[SINCE] = 0;
    state[BAD]++;
}

static void grow(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    double *state = scaler->state, factor = config->value[FACTOR];
    if (state[BASE] == 0 || !(config->integral >> FACTOR & 1u)) {
        scaler->scale *= factor;
        state[BASE] = 0;
        return;
    }
    if (isinf(scaler->scale)) return; /* no larger number is kept */
    state[POWER]++;
    scaler->scale = ab_python_int(state[BASE], factor, state[POWER]);
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double *state = scaler->state;
    if (seen->overflow && state[BASE] != 0 && isinf(scaler->scale))
        return (ab_scaler_outcome){true, &too_large};
    if (seen->overflow) {
        shrink(scaler);
        if (state[BAD] > BAD_MOST) return (ab_scaler_outcome){true, &too_many};
    } else {
        if (fmod(state[SINCE], scaler->config.value[WINDOW]) == 0) grow(scaler);
        state[BAD] = 0;
    }
    state[SINCE]++;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t quiet(const ab_scaler *scaler) {
    double window = scaler->config.value[WINDOW], phase = fmod(scaler->state[SINCE], window);
    return (int64_t)(phase == 0 ? 0 : window - phase);
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
    .start = start,
    .update = update,
    .quiet = quiet,
    .counters = 1u << SINCE,
};
