/* Loss scaling shared by two DeepSpeed optimizers. */
#include "bench/amp/scaler/deepspeed_inline.h"

#include <math.h>

const char *const ab_deepspeed_inline_states[AB_INLINE_STATES] = {[AB_INLINE_SINCE] = "since_overflow"};

void ab_deepspeed_inline_start(ab_scaler *scaler) {
    scaler->scale = scaler->config.value[AB_INLINE_INIT];
    scaler->state[AB_INLINE_SINCE] = 1;
}

ab_scaler_outcome ab_deepspeed_inline_update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    double *since = &scaler->state[AB_INLINE_SINCE], stable = *since - 1;
    if (seen->overflow)
        scaler->scale = fmax(scaler->scale / 2, value[AB_INLINE_MIN]);
    else if (stable > 0 && fmod(stable, value[AB_INLINE_WINDOW]) == 0)
        scaler->scale *= 2;
    *since = seen->overflow ? 1 : *since + 1;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

int64_t ab_deepspeed_inline_steps_until_change(const ab_scaler *scaler) {
    double window = scaler->config.value[AB_INLINE_WINDOW], stable = scaler->state[AB_INLINE_SINCE] - 1;
    double phase = fmod(stable, window);
    return (int64_t)(phase != 0 ? window - phase : stable == 0 ? 1 : 0);
}
