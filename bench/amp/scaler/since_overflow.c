/* Windows that count from the last overflow, and scales that are Python numbers. */
#include "bench/amp/scaler/since_overflow.h"

#include "bench/amp/scaler/python_int.h"

#include <math.h>

bool ab_since_window_ends(const ab_scaler *scaler) {
    return fmod(scaler->state[AB_SINCE_COUNT], scaler->config.value[AB_SINCE_WINDOW]) == 0;
}

int64_t ab_since_steps_until_change(const ab_scaler *scaler) {
    const double window = scaler->config.value[AB_SINCE_WINDOW];
    const double phase = fmod(scaler->state[AB_SINCE_COUNT], window);
    return (int64_t)(phase == 0 ? 0 : window - phase);
}

void ab_since_start(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    scaler->scale = config->value[AB_SINCE_INIT];
    scaler->state[AB_SINCE_COUNT] = 1;
    if (config->integral >> AB_SINCE_INIT & 1u) scaler->state[AB_SINCE_BASE] = scaler->scale;
}

void ab_since_lower(ab_scaler *scaler, double reduced) {
    const bool floor = reduced < 1;
    scaler->scale = floor ? 1 : reduced;
    scaler->state[AB_SINCE_BASE] = floor;
    scaler->state[AB_SINCE_POWER] = 0;
    scaler->state[AB_SINCE_COUNT] = 0;
}

void ab_since_grow(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    double *state = scaler->state, factor = config->value[AB_SINCE_FACTOR];
    if (state[AB_SINCE_BASE] == 0 || !(config->integral >> AB_SINCE_FACTOR & 1u)) {
        scaler->scale *= factor;
        state[AB_SINCE_BASE] = 0;
        return;
    }
    if (isinf(scaler->scale)) return; /* already saturated */
    state[AB_SINCE_POWER]++;
    scaler->scale = ab_python_int(state[AB_SINCE_BASE], factor, state[AB_SINCE_POWER]);
}

bool ab_since_too_large(const ab_scaler *scaler) {
    return scaler->state[AB_SINCE_BASE] != 0 && isinf(scaler->scale);
}
