/* Keras 3's LossScaleOptimizer (keras/src/optimizers/loss_scale_optimizer.py): fp32, doubles and halves, no
 * floor, no cap and no guard. (The optimizer of TensorFlow 2's own Keras had a floor of 1.) */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, WINDOW };
enum { COUNTER };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "initial_scale", "first scale", AB_SCALER_REAL, 0x1p15, 0, 0x1p128, true, false},
    [WINDOW] = {"window", "dynamic_growth_steps",
                "clean steps in a row before the scale doubles; 0 and below: never", AB_SCALER_INTEGER, 2000,
                -0x1p31, 0x1p31, true, true},
};
static const char *const states[] = {[COUNTER] = "step_counter"};

static void start(ab_scaler *scaler) { scaler->scale = ab_fp32(scaler->config.value[INIT]); }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double *counter = &scaler->state[COUNTER];
    if (seen->overflow) {
        *counter = 0;
        scaler->scale = ab_fp32(scaler->scale * 0.5);
    } else if (*counter == scaler->config.value[WINDOW] - 1) {
        *counter = 0;
        scaler->scale = ab_fp32(scaler->scale * 2);
    } else {
        ++*counter;
    }
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - 1 - scaler->state[COUNTER];
    return left >= 0 ? (int64_t)left : INT64_MAX;
}

extern const ab_scaler_kind ab_scaler_keras;
const ab_scaler_kind ab_scaler_keras = {
    .name = "keras",
    .origin = "keras.optimizers.LossScaleOptimizer, 3.15",
    .text = "starts at 2^15, window 2000, no floor, no cap; may reach 0 or infinity",
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
