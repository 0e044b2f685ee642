/* apex's dynamic loss scale (apex/amp/scaler.py, class LossScaler): starts at min(max, 2^16); an overflow halves it, down to
 * the floor if one is set, and skips the step; the window-th clean step in a row doubles it, up to the cap. The counter
 * restarts at the cap too. A floor above the scale raises it on an overflow, as the original does. */
#include "bench/amp/scaler.h"

#include <math.h>

static void start(ab_scaler *scaler) { scaler->scale = fmin(scaler->config.max_scale, scaler->scale); }

static bool update(ab_scaler *scaler, bool overflow) {
    const ab_scaler_config *config = &scaler->config;
    if (overflow) {
        scaler->scale /= 2;
        if (config->min_scale != 0) scaler->scale = fmax(config->min_scale, scaler->scale);
        scaler->unskipped = 0;
    } else {
        scaler->unskipped++;
    }
    if (scaler->unskipped == config->window) {
        scaler->scale = fmin(config->max_scale, scaler->scale * 2);
        scaler->unskipped = 0;
    }
    return overflow;
}

extern const ab_scaler_kind ab_scaler_apex;
const ab_scaler_kind ab_scaler_apex = {
    .name = "apex",
    .text = "dynamic: halve and skip on overflow, double after 2000 clean steps",
    .checks = true,
    .defaults = {.init = 65536.0, .max_scale = 16777216.0, .window = 2000},
    .start = start,
    .update = update,
};
