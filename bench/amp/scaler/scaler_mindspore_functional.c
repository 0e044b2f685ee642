/* MindSpore's amp.DynamicLossScaler (amp.py): fp32, grows when the counter is one below the window and the
 * product is finite, divides by the factor on an overflow, floor 1. The original does not skip steps; its
 * caller does. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, FACTOR, WINDOW };
enum { COUNTER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "scale_value", "first scale (required by the original)", AB_SCALER_REAL, 0x1p16, 1,
              0x1p127, false, true},
    [FACTOR] = {"factor", "scale_factor", "growth, and division by it on overflow (required by the original)",
                AB_SCALER_INTEGER, 2, 1, 0x1p31, false, true},
    [WINDOW] = {"window", "scale_window",
                "clean steps in a row before the scale grows (required by the original)", AB_SCALER_INTEGER,
                2000, 1, 0x1p31, false, true},
};
static const char *const states[] = {[COUNTER] = "counter"};

static void start(ab_scaler *scaler) { scaler->scale = ab_fp32(scaler->config.value[INIT]); }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    double factor = ab_fp32(value[FACTOR]), *counter = &scaler->state[COUNTER];
    double grown = ab_fp32(scaler->scale * factor), reduced = ab_fp32(scaler->scale / factor);
    if (seen->overflow)
        scaler->scale = reduced < 1 ? 1 : reduced;
    else if (*counter == value[WINDOW] - 1 && isfinite(grown))
        scaler->scale = grown;
    *counter = seen->overflow ? 0 : fmod(*counter + 1, value[WINDOW]);
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - 1 - scaler->state[COUNTER];
    return left > 0 ? (int64_t)left : 0;
}

extern const ab_scaler_kind ab_scaler_mindspore_functional;
const ab_scaler_kind ab_scaler_mindspore_functional = {
    .name = "mindspore-functional",
    .origin = "mindspore.amp.DynamicLossScaler",
    .text = "window of clean steps in a row, floor 1; growth to infinity is refused; the user skips",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << COUNTER,
};
