/* OpenSeq2Seq's LogMaxScaler (open_seq2seq/optimizers/automatic_loss_scaler.py): assumes that log2 of each
 * step's largest gradient is normally distributed and sets the scale so that a step overflows with a chosen
 * probability. Running means with bias correction, all in fp32. On an overflow the original adds 2^log_max
 * instead of log_max to a mean of logarithms: one overflow spoils the estimate for many steps. If the largest
 * gradient is 0, its logarithm is -infinity and the scale stays NaN. */
#include "bench/amp/scaler/scaler.h"
#include "kernels/core/elementary64.h"

#include <math.h>

enum { MIN, MAX, LOG_MAX, BETA1, BETA2, SIGMAS };
enum { MEAN, SLOW_MEAN, SQUARE, CORRECTION1, CORRECTION2 };

static const ab_scaler_key keys[] = {
    [MIN] = {"min", "scale_min", "floor", AB_SCALER_REAL, 1, 0, 0x1p128, true, false},
    [MAX] = {"max", "scale_max", "cap", AB_SCALER_REAL, 0x1p24, 0, 0x1p128, true, false},
    [LOG_MAX] = {"log_max", NULL, "2 to this is what an overflow counts as (log2 of a gradient was meant)",
                 AB_SCALER_REAL, 16, -126, 127, false, false},
    [BETA1] = {"beta1", NULL, "decay of the mean", AB_SCALER_REAL, 0.99, 0, 1, true, false},
    [BETA2] = {"beta2", NULL, "decay of the variance", AB_SCALER_REAL, 0.999, 0, 1, true, false},
    [SIGMAS] = {"sigmas", "overflow_std_dev", "standard deviations kept free above the mean", AB_SCALER_REAL,
                3.09, -HUGE_VAL, HUGE_VAL, false, false},
};
static const char *const states[] = {[MEAN] = "x_hat",
                                     [SLOW_MEAN] = "slow_x_hat",
                                     [SQUARE] = "xsquared_hat",
                                     [CORRECTION1] = "b1_correction",
                                     [CORRECTION2] = "b2_correction"};

static void start(ab_scaler *scaler) {
    scaler->scale = 1;
    scaler->state[CORRECTION1] = scaler->state[CORRECTION2] = 1;
}

/* beta * mean + (1 - beta) * x, as fp32 tensors and Python constants combine */
static void average(double *mean, double beta, double x) {
    float kept = (float)beta * (float)*mean, added = (float)(1 - beta) * (float)x;
    *mean = (double)(kept + added);
}

static double cutoff(ab_scaler *scaler, double x) {
    const double *value = scaler->config.value;
    double *state = scaler->state;
    average(&state[MEAN], value[BETA1], x);
    average(&state[SLOW_MEAN], value[BETA2], x);
    average(&state[SQUARE], value[BETA2], ab_fp32(x * x));
    state[CORRECTION1] = (double)((float)state[CORRECTION1] * (float)value[BETA1]);
    state[CORRECTION2] = (double)((float)state[CORRECTION2] * (float)value[BETA2]);
    float rest1 = 1 - (float)state[CORRECTION1], rest2 = 1 - (float)state[CORRECTION2];
    float mean = (float)state[MEAN] / rest1;
    float slow = (float)state[SLOW_MEAN] / rest2;
    float square = (float)state[SQUARE] / rest2;
    float slow_square = slow * slow;
    float variance = square - slow_square;
    float sigma = variance < 0 ? 0 : sqrtf(variance); /* NaN propagates */
    float free = sigma * (float)value[SIGMAS];
    return (double)(free + mean);
}

/* fp32 functions from fp64 ones: correctly rounded except for near ties. */
static float logarithm(float x) { return (float)ab_log((double)x); }
static float power_of_two(float x) { return (float)ab_pow(2, (double)x); }

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    bool bad = seen->overflow || !isfinite(seen->amax);
    float x = bad ? power_of_two((float)value[LOG_MAX]) : logarithm((float)seen->amax) / logarithm(2);
    double proposed = (double)power_of_two((float)(16 - cutoff(scaler, (double)x)));
    if (proposed > value[MAX]) proposed = ab_fp32(value[MAX]);
    if (proposed < value[MIN]) proposed = ab_fp32(value[MIN]);
    scaler->scale = proposed;
    return (ab_scaler_outcome){.skip = bad};
}

extern const ab_scaler_kind ab_scaler_openseq2seq_logmax;
const ab_scaler_kind ab_scaler_openseq2seq_logmax = {
    .name = "openseq2seq-logmax",
    .origin = "open_seq2seq/optimizers/automatic_loss_scaler.py, LogMaxScaler",
    .text = "2^(16 - mean - 3.09 sigma) of log2 of the largest gradient; an overflow counts as 2^16, not 16",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .sees = AB_SEES_AMAX,
    .fp32 = true,
    .start = start,
    .update = update,
};
