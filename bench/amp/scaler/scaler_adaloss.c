/* AdaLoss (Zhao, Vogel, Ahmed, arXiv:1910.12385; kumasento/gradient-scaling, ada_loss/): each layer
 * multiplies the gradient it passes back by its own power of two, computed from statistics of its gradient
 * and weights: s = u_min / (sqrt(2) erfinv(underflow) sigma), at least 1, at most u_max / (fan_in max|g|
 * max|W|), sigma^2 = (g_std^2 + g_mean^2) (W_std^2 + W_mean^2), then at most accum / chain and at most bound.
 * One scaler per layer. No step is skipped and the loss is not scaled; bench/train/pass/layer_scales.c
 * iterates over the layers. */
#include "bench/amp/scaler/scaler.h"
#include "kernels/core/elementary64.h"

#include <math.h>

enum { U_MIN, U_MAX, UNDERFLOW_SHARE, BOUND, ACCUM, POWER_OF_TWO, EVERY };
enum { STEP, STORED };

static const ab_scaler_key keys[] = {
    [U_MIN] = {"u_min", NULL, "smallest fp16 magnitude", AB_SCALER_REAL, 6e-8, 0, 1, true, false},
    [U_MAX] = {"u_max", NULL, "largest fp16 magnitude", AB_SCALER_REAL, 65504, 0, 0x1p127, true, false},
    [UNDERFLOW_SHARE] = {"underflow", "n_uf_threshold", "share of products that may underflow",
                         AB_SCALER_REAL, 1e-3, 0, 1, true, false},
    [BOUND] = {"bound", "scale_upper_bound", "most a layer may multiply by", AB_SCALER_REAL, 16, 0, 65504,
               true, false},
    [ACCUM] = {"accum", "accum_upper_bound", "most the layers together may multiply by", AB_SCALER_REAL, 1024,
               0, 65504, true, false},
    [POWER_OF_TWO] = {"power_of_two", NULL, "round down to a power of two", AB_SCALER_BOOL, 1, 0, 1, false,
                      false},
    [EVERY] = {"every", "update_per_n_iteration", "steps between two looks at the statistics",
               AB_SCALER_INTEGER, 1, 1, 0x1p31, false, true},
};
static const char *const states[] = {[STEP] = "iteration_in_period", [STORED] = "stored_scale"};

static const ab_scaler_fault bad_statistics = {
    "scale_invalid", "the statistics give a scale that is NaN or inf: ValueError", true};

static void start(ab_scaler *scaler) { scaler->scale = scaler->state[STORED] = 1; }

static const double root_pi = 1.7724538509055160273;

/* erf(x) for 0 <= x < 6, by its series of positive terms: 2 x exp(-x^2) / sqrt(pi) times the sum of (2 x^2)^n
 * / (1 3 5 ... 2n+1) (Abramowitz and Stegun, 7.1.6). */
static double error_function(double x) {
    double term = 1, sum = 1;
    for (int n = 1; term > 0x1p-60 * sum; n++) {
        term *= 2 * x * x / (2 * n + 1);
        sum += term;
    }
    return 2 * x / root_pi * ab_exp(-x * x) * sum;
}

/* The x whose erf is y, 0 < y < 1: Newton's method, whose slope 2/sqrt(pi) exp(-x^2) never vanishes here. */
static double inverse_erf(double y) {
    double x = 0, before = -1;
    for (int i = 0; i < 60 && x != before; i++) {
        before = x;
        x += (y - error_function(x)) * root_pi / 2 * ab_exp(x * x);
    }
    return x;
}

/* The largest power of two <= x, for x > 0; 0 and NaN are returned unchanged. */
static double power_of_two_below(double x) {
    int exponent;
    if (!(x > 0)) return x;
    frexp(x, &exponent);
    return ldexp(1, exponent - 1);
}

static double from_statistics(const double *value, const ab_scaler_layer *layer) {
    double chain = layer->chain; /* the layer's gradient is already scaled by the earlier layers */
    double g_mean = layer->g_mean * chain, g_std = layer->g_std * chain;
    double variance =
        (g_std * g_std + g_mean * g_mean) * (layer->w_std * layer->w_std + layer->w_mean * layer->w_mean);
    if (variance == 0) return 1;
    double scale = value[U_MIN] / (sqrt(2) * inverse_erf(value[UNDERFLOW_SHARE]) * sqrt(variance));
    double most = value[U_MAX] / layer->fan_in / (layer->g_max * chain * layer->w_max);
    if (isnan(scale) || isnan(most)) return (double)NAN; /* numpy's minimum and maximum propagate NaN */
    return ab_fp32(fmin(fmax(scale, 1), most));
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    double *state = scaler->state;
    if (!seen->layer) return (ab_scaler_outcome){.skip = false};
    if (state[STEP] == 0) state[STORED] = from_statistics(value, seen->layer);
    state[STEP] = fmod(state[STEP] + 1, value[EVERY]);
    if (!isfinite(state[STORED])) return (ab_scaler_outcome){true, &bad_statistics};
    double scale = fmin(fmin(state[STORED], value[ACCUM] / seen->layer->chain), value[BOUND]);
    scaler->scale = value[POWER_OF_TWO] != 0 ? power_of_two_below(scale) : scale;
    return (ab_scaler_outcome){.skip = false};
}

extern const ab_scaler_kind ab_scaler_adaloss;
const ab_scaler_kind ab_scaler_adaloss = {
    .name = "adaloss",
    .origin = "kumasento/gradient-scaling, ada_loss/core.py, method approx_range",
    .text = "a power of two for each layer from its gradient and weight statistics",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .sees = AB_SEES_LAYER,
    .start = start,
    .update = update,
};
