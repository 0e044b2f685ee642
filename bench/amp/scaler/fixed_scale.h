/* What fixed loss scales share: the key, the state, and their start. */
#ifndef AB_BENCH_AMP_SCALER_FIXED_SCALE_H
#define AB_BENCH_AMP_SCALER_FIXED_SCALE_H

#include "bench/amp/scaler/scaler.h"

#include <float.h>

enum { AB_FIXED_INIT };
enum { AB_FIXED_UNSKIPPED }; /* steps in a row that were not skipped; only counted */

/* At the start the scale is the configured one. */
static inline void ab_fixed_start(ab_scaler *scaler) { scaler->scale = scaler->config.value[AB_FIXED_INIT]; }

/* The scale never changes: steps_until_change and overflows_until_change. */
static inline int64_t ab_fixed_steps_until_change(const ab_scaler *scaler) {
    (void)scaler;
    return INT64_MAX;
}

/* The one key: the scale. */
static const ab_scaler_key ab_fixed_keys[] = {
    [AB_FIXED_INIT] = {"init", "loss_scale", "the scale", AB_SCALER_REAL, 1, 0x1p-149, (double)FLT_MAX, false,
                       false},
};

static const char *const ab_fixed_states[] = {[AB_FIXED_UNSKIPPED] = "unskipped"};

/* The members of ab_scaler_kind that do not tell one from the other. */
#define AB_FIXED_SCALE                                                                                       \
    .key = ab_fixed_keys, .keys = AB_COUNT_OF(ab_fixed_keys), .state = ab_fixed_states,                      \
    .states = AB_COUNT_OF(ab_fixed_states), .start = ab_fixed_start,                                         \
    .steps_until_change = ab_fixed_steps_until_change, .counters = 1u << AB_FIXED_UNSKIPPED,                 \
    .overflows_until_change = ab_fixed_steps_until_change

#endif
