/* The loss scale of DeepSpeed's unfused fp16 optimizer, without ZeRO: deepspeed_inline.h with its defaults.
 */
#include "bench/amp/scaler/deepspeed_inline.h"

#include <math.h>

static const ab_scaler_key keys[] = {
    [AB_INLINE_INIT] = {"init", "init_scale", "first scale", AB_SCALER_REAL, 0x1p16, 0, HUGE_VAL, true, true},
    [AB_INLINE_WINDOW] = {"window", "scale_window", AB_INLINE_WINDOW_TEXT, AB_SCALER_INTEGER, 1000, 1, 0x1p53,
                          false, true},
    [AB_INLINE_MIN] = {"min", "min_scale", "floor", AB_SCALER_REAL, 0.25, 0, HUGE_VAL, true, false},
};

extern const ab_scaler_kind ab_scaler_deepspeed_unfused;
const ab_scaler_kind ab_scaler_deepspeed_unfused = {
    .name = "deepspeed-unfused",
    .origin = "deepspeed/runtime/fp16/unfused_optimizer.py, _update_scale, 0.19",
    .text = "starts at 2^16, window 1000 (+1 after an overflow), floor 0.25; never raises",
    .key = keys,
    .keys = AB_INLINE_KEYS,
    .state = ab_deepspeed_inline_states,
    .states = AB_INLINE_STATES,
    .updates_first = true,
    .start = ab_deepspeed_inline_start,
    .update = ab_deepspeed_inline_update,
    .steps_until_change = ab_deepspeed_inline_steps_until_change,
    .counters = 1u << AB_INLINE_SINCE,
};
