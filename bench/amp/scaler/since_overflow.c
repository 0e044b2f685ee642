/* Windows that count from the last overflow, and scales that are Python numbers. */
#include "bench/amp/scaler/since_overflow.h"

#include "bench/amp/scaler/python_int.h"

#include <math.h>

bool ab_growth_window_ends(const ab_scaler *scaler) {
    return fmod(scaler->state[AB_GROWTH_COUNT], scaler->config.value[AB_GROWTH_WINDOW]) == 0;
}

int64_t ab_growth_steps_until_change(const ab_scaler *scaler) {
    const double window = scaler->config.value[AB_GROWTH_WINDOW];
    const double phase = fmod(scaler->state[AB_GROWTH_COUNT], window);
    return (int64_t)(phase == 0 ? 0 : window - phase);
}

void ab_python_scale_start(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    scaler->scale = config->value[AB_GROWTH_INIT];
    scaler->state[AB_GROWTH_COUNT] = 1;
    if (config->integral >> AB_GROWTH_INIT & 1u) scaler->state[AB_GROWTH_BASE] = scaler->scale;
}

void ab_python_scale_lower(ab_scaler *scaler, double reduced) {
    const bool floor = reduced < 1;
    scaler->scale = floor ? 1 : reduced;
    scaler->state[AB_GROWTH_BASE] = floor;
    scaler->state[AB_GROWTH_POWER] = 0;
    scaler->state[AB_GROWTH_COUNT] = 0;
}

void ab_python_scale_grow(ab_scaler *scaler) {
    const ab_scaler_config *config = &scaler->config;
    double *state = scaler->state, factor = config->value[AB_GROWTH_FACTOR];
    if (state[AB_GROWTH_BASE] == 0 || !(config->integral >> AB_GROWTH_FACTOR & 1u)) {
        scaler->scale *= factor;
        state[AB_GROWTH_BASE] = 0;
        return;
    }
    if (isinf(scaler->scale)) return; /* already saturated */
    state[AB_GROWTH_POWER]++;
    scaler->scale = ab_python_int(state[AB_GROWTH_BASE], factor, state[AB_GROWTH_POWER]);
}

bool ab_python_scale_too_large(const ab_scaler *scaler) {
    return scaler->state[AB_GROWTH_BASE] != 0 && isinf(scaler->scale);
}
