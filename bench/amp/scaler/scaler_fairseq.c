/* fairseq's DynamicLossScaler (fairseq/optim/dynamic_loss_scaler.py): the window counts from the last
 * overflow; the scale falls only if overflows make up at least `tolerance` of the steps since it last
 * changed; at min_loss_scale the original restores the scale and raises. */
#include "bench/amp/scaler/since_overflow.h"

#include <math.h>

enum { TOLERANCE = AB_GROWTH_KEYS, THRESHOLD, MIN };
enum { SINCE_RESCALE = AB_GROWTH_COUNT + 1, OVERFLOWS };

static const ab_scaler_key keys[] = {
    [AB_GROWTH_INIT] = {"init", "init_scale", "first scale (--fp16-init-scale gives 128)", AB_SCALER_REAL,
                        0x1p15, 0, HUGE_VAL, true, false},
    [AB_GROWTH_FACTOR] = {"factor", "scale_factor", "growth, and division by it on overflow", AB_SCALER_REAL,
                          2, 0, HUGE_VAL, true, false},
    [AB_GROWTH_WINDOW] = {"window", "scale_window", AB_GROWTH_WINDOW_TEXT, AB_SCALER_INTEGER, 2000, 1, 0x1p53,
                          false, true},
    [TOLERANCE] = {"tolerance", NULL, "share of overflows since the last change that is let pass",
                   AB_SCALER_REAL, 0, 0, HUGE_VAL, false, false},
    [THRESHOLD] = {"threshold", "threshold_loss_scale", "the scale falls no lower; 0: none", AB_SCALER_REAL,
                   0, 0, HUGE_VAL, false, false},
    [MIN] = {"min", "min_loss_scale", "a scale this low after an overflow raises", AB_SCALER_REAL, 1e-4, 0,
             HUGE_VAL, false, false},
};
static const char *const states[] = {[AB_GROWTH_COUNT] = "since_overflow",
                                     [SINCE_RESCALE] = "since_rescale",
                                     [OVERFLOWS] = "overflows_since_rescale"};

static const ab_scaler_fault at_floor = {
    "at_floor", "an overflow took the scale to min_loss_scale: FloatingPointError ends the run", true};

static void start(ab_scaler *scaler) {
    scaler->scale = scaler->config.value[AB_GROWTH_INIT];
    scaler->state[AB_GROWTH_COUNT] = scaler->state[SINCE_RESCALE] = 1;
}

static void shrink(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    scaler->scale /= value[AB_GROWTH_FACTOR];
    if (value[THRESHOLD] != 0) scaler->scale = fmax(scaler->scale, value[THRESHOLD]);
    scaler->state[SINCE_RESCALE] = 0;
    scaler->state[OVERFLOWS] = 0;
}

static const ab_scaler_fault *overflowed(ab_scaler *scaler) {
    double *state = scaler->state, before = scaler->scale;
    state[AB_GROWTH_COUNT] = 0;
    state[OVERFLOWS]++;
    if (state[OVERFLOWS] / state[SINCE_RESCALE] >= scaler->config.value[TOLERANCE]) shrink(scaler);
    if (!(scaler->scale <= scaler->config.value[MIN])) return NULL;
    scaler->scale = before;
    return &at_floor;
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double *state = scaler->state;
    ab_scaler_outcome outcome = {.skip = seen->overflow};
    if (seen->overflow) {
        outcome.fault = overflowed(scaler);
        if (outcome.fault) return outcome;
    } else if (ab_growth_window_ends(scaler)) {
        scaler->scale *= scaler->config.value[AB_GROWTH_FACTOR];
        state[SINCE_RESCALE] = 0;
    }
    state[AB_GROWTH_COUNT]++;
    state[SINCE_RESCALE]++;
    return outcome;
}

extern const ab_scaler_kind ab_scaler_fairseq;
const ab_scaler_kind ab_scaler_fairseq = {
    .name = "fairseq",
    .origin = "fairseq/optim/dynamic_loss_scaler.py, 0.12.2",
    .text = "starts at 2^15, window 2000 from the last overflow, a tolerated share, raises at 1e-4",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .start = start,
    .update = update,
    .steps_until_change = ab_growth_steps_until_change,
    .counters = 1u << AB_GROWTH_COUNT | 1u << SINCE_RESCALE,
    .phases = 1u << AB_GROWTH_COUNT,
    .window = AB_GROWTH_WINDOW,
};
