/* OpenSeq2Seq's BackoffScaler (open_seq2seq/optimizers/automatic_loss_scaler.py): fp32, starts at its cap,
 * the window counts from the last overflow, every change is clipped to floor and cap. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { MIN, MAX, FACTOR, WINDOW };
enum { SINCE };

static const ab_scaler_key keys[] = {
    [MIN] = {"min", "scale_min", "floor", AB_SCALER_REAL, 1, 0, 0x1p128, true, false},
    [MAX] = {"max", "scale_max", "cap and first scale", AB_SCALER_REAL, 0x1p24, 0, 0x1p128, true, false},
    [FACTOR] = {"factor", "step_factor", "growth, and division by it on overflow", AB_SCALER_REAL, 2, 0,
                0x1p128, true, false},
    [WINDOW] = {"window", "step_window",
                "the scale grows when this many steps, or a multiple, have passed since the "
                "last overflow",
                AB_SCALER_INTEGER, 2000, 1, 0x1p53, false, true},
};
static const char *const states[] = {[SINCE] = "since_overflow"};

static ab_status check(const ab_scaler_config *config) {
    if (config->value[MIN] <= config->value[MAX]) return AB_OK;
    return ab_fail(AB_USAGE, "loss scaler openseq2seq-backoff: min %.9g is above max %.9g",
                   config->value[MIN], config->value[MAX]);
}

static void start(ab_scaler *scaler) {
    scaler->scale = ab_fp32(scaler->config.value[MAX]);
    scaler->state[SINCE] = 1;
}

static double clipped(const ab_scaler *scaler, double scale) {
    const double *value = scaler->config.value;
    return fmax(ab_fp32(value[MIN]), fmin(ab_fp32(value[MAX]), ab_fp32(scale)));
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double factor = ab_fp32(scaler->config.value[FACTOR]), *since = &scaler->state[SINCE];
    if (seen->overflow)
        scaler->scale = clipped(scaler, scaler->scale / factor);
    else if (fmod(*since, scaler->config.value[WINDOW]) == 0)
        scaler->scale = clipped(scaler, scaler->scale * factor);
    *since = seen->overflow ? 1 : *since + 1;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double window = scaler->config.value[WINDOW], phase = fmod(scaler->state[SINCE], window);
    return (int64_t)(phase == 0 ? 0 : window - phase);
}

extern const ab_scaler_kind ab_scaler_openseq2seq_backoff;
const ab_scaler_kind ab_scaler_openseq2seq_backoff = {
    .name = "openseq2seq-backoff",
    .origin = "open_seq2seq/optimizers/automatic_loss_scaler.py, BackoffScaler",
    .text = "starts at its cap of 2^24, window 2000 from the last overflow, floor 1",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .check = check,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << SINCE,
};
