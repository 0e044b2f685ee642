/* MindSpore's DynamicLossScaleUpdateCell (nn/wrap/loss_scale.py), which training uses: fp32, a backoff
 * multiplies by the fp32 reciprocal of the factor, floor 1, no cap and no check, so that growth can reach
 * infinity and stay there. */
#include "bench/amp/scaler/scaler.h"

#include <math.h>

enum { INIT, FACTOR, WINDOW };
enum { SINCE }; /* this step's number less that of the last overflow or growth */

static const ab_scaler_key keys[] = {
    [INIT] = {"init", "loss_scale_value", "first scale", AB_SCALER_REAL, 0x1p24, 1, 0x1p127, false, true},
    [FACTOR] = {"factor", "scale_factor", "growth, and the reciprocal of a backoff", AB_SCALER_REAL, 2, 0,
                0x1p31, true, true},
    [WINDOW] = {"window", "scale_window", "steps since the last change or overflow before the scale grows",
                AB_SCALER_INTEGER, 2000, 1, 0x1p31, false, true},
};
static const char *const states[] = {[SINCE] = "since_change"};

static void start(ab_scaler *scaler) {
    scaler->scale = ab_fp32(scaler->config.value[INIT]);
    scaler->state[SINCE] = 1;
}

static ab_scaler_outcome update(ab_scaler *scaler, const ab_scaler_seen *seen) {
    double factor = ab_fp32(scaler->config.value[FACTOR]), *since = &scaler->state[SINCE];
    bool due = scaler->config.value[WINDOW] <= *since;
    if (seen->overflow) {
        double reduced = ab_fp32(scaler->scale * ab_fp32(1 / factor));
        scaler->scale = reduced < 1 ? 1 : reduced;
    } else if (due) {
        scaler->scale = ab_fp32(scaler->scale * factor);
    }
    *since = seen->overflow || due ? 1 : *since + 1;
    return (ab_scaler_outcome){.skip = seen->overflow};
}

static int64_t steps_until_change(const ab_scaler *scaler) {
    double left = scaler->config.value[WINDOW] - scaler->state[SINCE];
    return left > 0 ? (int64_t)left : 0;
}

extern const ab_scaler_kind ab_scaler_mindspore_cell;
const ab_scaler_kind ab_scaler_mindspore_cell = {
    .name = "mindspore-cell",
    .origin = "mindspore.nn.DynamicLossScaleUpdateCell",
    .text = "starts at 2^24, window 2000, floor 1, no cap; growth may reach infinity",
    .key = keys,
    .keys = AB_COUNT_OF(keys),
    .state = states,
    .states = AB_COUNT_OF(states),
    .fp32 = true,
    .start = start,
    .update = update,
    .steps_until_change = steps_until_change,
    .counters = 1u << SINCE,
};
