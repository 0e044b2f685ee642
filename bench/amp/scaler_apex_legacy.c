/* apex's older dynamic loss scale (apex/fp16_utils/loss_scaler.py, class DynamicLossScaler): the window counts from the last
 * overflow and not from the last change, there is a floor of 1 and no cap. Python numbers: with an int factor the scale is an
 * int that grows without end, and an overflow above 2^1024 raises. */
#include "bench/amp/python_int.h"
#include "bench/amp/scaler.h"

#include <math.h>

enum { INIT, FACTOR, WINDOW };
/* `since`: this iteration's number less the last overflow's; `base`, `power`: the scale is the int base * factor^power, or a
 * float where base is 0. */
enum { SINCE, BASE, POWER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "init_scale", "first scale", AB_SCALER_REAL, 0x1p32, 0, 0x1p53, true, true},
    [FACTOR] = {"factor", "scale_factor",
                "growth, and division by it on overflow; an int (2) counts without "
                "rounding, a float (2.0) may reach infinity",
                AB_SCALER_REAL, 2, 0, 0x1p31, true, false},
    [WINDOW] = {"window", "scale_window",
                "the scale grows when this many steps, or a multiple, have passed since "
                "the last overflow",
                AB_SCALER_INTEGER, 1000, 1, 0x1p53, false, true},
};
static const char *const states[] = {[SINCE] = "since_overflow", [BASE] = "int_base", [POWER] = "int_power"};

static const ab_scaler_fault too_large = {
    "int_too_large", "the scale is a Python int above every float; dividing it raises OverflowError", true};

static void start(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    scaler->scale = config->value[INIT];
    scaler->state[SINCE] = 1;
    if (config->integral >> INIT & 1u) scaler->state[BASE] = scaler->scale;
}

static void shrink(ab_scaler *scaler) {
    double divided = scaler->scale / scaler->config.value[FACTOR];
    bool floor = divided < 1; /* max(divided, 1) gives the int 1 */
    scaler->scale = floor ? 1 : divided;
    scaler->state[BASE] = floor;
    scaler->state[POWER] = 0;
    scaler->state[SINCE] = 0;
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
    if (seen->overflow)
        shrink(scaler);
    else if (fmod(state[SINCE], scaler->config.value[WINDOW]) == 0)
        grow(scaler);
    state[SINCE]++;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t quiet(const ab_scaler *scaler) {
    double window = scaler->config.value[WINDOW], phase = fmod(scaler->state[SINCE], window);
    return (int64_t)(phase == 0 ? 0 : window - phase);
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
    .start = start,
    .update = update,
    .quiet = quiet,
    .counters = 1u << SINCE,
};
