/* apex's dynamic loss scale (apex/amp/scaler.py, class LossScaler): starts at min(max, 2^16); an overflow
 * halves it, down to the floor if one is set, and skips the step; the window-th clean step in a row doubles
 * it, up to the cap. The counter also restarts at the cap. As in the original, a floor above the scale raises
 * it on an overflow, and a window of 0 undoes every backoff. Without a floor 1,091 overflows in a row end at
 * 0, and the next step divides by it. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, WINDOW, MIN, MAX };
enum { UNSKIPPED };

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "init_scale", "first scale, at most max", AB_SCALER_REAL, 0x1p16, 0, HUGE_VAL, true,
              true},
    [WINDOW] = {"window", "scale_window", "clean steps in a row before the scale doubles", AB_SCALER_INTEGER,
                2000, 0, 0x1p53, false, true},
    [MIN] = {"min", "min_loss_scale", "floor of a backoff; 0: none", AB_SCALER_REAL, 0, 0, HUGE_VAL, false,
             true},
    [MAX] = {"max", "max_loss_scale", "cap of growth and of the first scale", AB_SCALER_REAL, 0x1p24, 0,
             HUGE_VAL, true, true},
};
static const char *const states[] = {[UNSKIPPED] = "unskipped"};

static void start(ab_scaler *scaler) {
    const double *value = scaler->config.value;
    scaler->scale = fmin(value[MAX], value[INIT]);
}

/* 1/scale in Python, which raises. */
static const ab_scaler_fault divides_by_zero = {
    "division_by_zero", "the scale is 0 and unscaling divides by it: ZeroDivisionError", true};

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    const double *value = scaler->config.value;
    double *unskipped = &scaler->state[UNSKIPPED];
    if (scaler->scale == 0) return (ab_scaler_outcome){true, &divides_by_zero};
    if (seen->overflow) {
        scaler->scale /= 2;
        if (value[MIN] != 0) scaler->scale = fmax(value[MIN], scaler->scale);
        *unskipped = 0;
    } else {
        ++*unskipped;
    }
    if (*unskipped == value[WINDOW]) {
        scaler->scale = fmin(value[MAX], scaler->scale * 2);
        *unskipped = 0;
    }
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - scaler->state[UNSKIPPED] - 1;
    if (scaler->scale == 0) return 0;
    return left >= 0 ? (int64_t)left : INT64_MAX;
}

extern const ab_scaler_kind ab_scaler_apex;
const ab_scaler_kind ab_scaler_apex = {
    .name = "apex",
    .origin = "apex/amp/scaler.py, dynamic (before its removal in 2025)",
    .text = "halve and skip on overflow, double after 2000 clean steps, cap 2^24, no floor",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << UNSKIPPED,
};
