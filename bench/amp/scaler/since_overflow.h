/* What scalers share whose window counts from the last overflow (apex's legacy class, MindSpore's manager,
 * fairseq): when it ends, and for the first two a scale that is a Python number: an int until an overflow
 * divides it, a float from then on. Their keys begin with init, factor, window and their states with the
 * count; no machine of its own. */
#ifndef AB_BENCH_AMP_SCALER_SINCE_OVERFLOW_H
#define AB_BENCH_AMP_SCALER_SINCE_OVERFLOW_H

#include "bench/amp/scaler/scaler.h"

AB_BEGIN_DECLS

enum { AB_SINCE_INIT, AB_SINCE_FACTOR, AB_SINCE_WINDOW, AB_SINCE_KEYS };
/* This iteration's number less the last overflow's; for Python numbers: the scale is the int base *
 * factor^power, or a float where base is 0. */
enum { AB_SINCE_COUNT, AB_SINCE_BASE, AB_SINCE_POWER, AB_SINCE_STATES };

#define AB_SINCE_WINDOW_TEXT                                                                                 \
    "the scale grows when this many steps, or a multiple, have passed since the last overflow"

/* Whether this clean step ends a window; how many clean steps to come do not. */
bool ab_since_window_ends(const ab_scaler *scaler);
int64_t ab_since_steps_until_change(const ab_scaler *scaler);

/* Of Python numbers: the first scale; growth by the factor; `reduced` in its place, with the floor of 1
 * (max(reduced, 1) gives the int 1); whether it is an int that no float holds, so that a division raises
 * OverflowError. */
void ab_since_start(ab_scaler *scaler);
void ab_since_grow(ab_scaler *scaler);
void ab_since_lower(ab_scaler *scaler, double reduced);
bool ab_since_too_large(const ab_scaler *scaler);

AB_END_DECLS

#endif
