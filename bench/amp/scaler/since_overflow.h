/* Shared by the scalers whose window counts from the last overflow (apex's legacy class, MindSpore's manager,
 * fairseq): the end of the window, and for the first two a scale that is a Python number: an int until an
 * overflow divides it, then a float. Their first keys are init, factor, window, their first state is the
 * count. */
#ifndef AB_BENCH_AMP_SCALER_SINCE_OVERFLOW_H
#define AB_BENCH_AMP_SCALER_SINCE_OVERFLOW_H

#include "bench/amp/scaler/scaler.h"

AB_BEGIN_DECLS

enum { AB_GROWTH_INIT, AB_GROWTH_FACTOR, AB_GROWTH_WINDOW, AB_GROWTH_KEYS };
/* Iterations since the last overflow; for Python numbers: the scale is the int base * factor^power, or a
 * float if base is 0. */
enum { AB_GROWTH_COUNT, AB_GROWTH_BASE, AB_GROWTH_POWER, AB_GROWTH_STATES };

#define AB_GROWTH_WINDOW_TEXT                                                                                \
    "the scale grows when this many steps, or a multiple, have passed since the last overflow"

/* Whether this clean step ends a window; how many further clean steps do not. */
bool ab_growth_window_ends(const ab_scaler *scaler);
int64_t ab_growth_steps_until_change(const ab_scaler *scaler);

/* For scales that are Python numbers. start: the initial scale. grow: multiplies by the factor. lower: sets
 * it to max(reduced, 1), where the floor is the int 1. too_large: whether it is an int beyond the float
 * range, so that a division raises OverflowError. */
void ab_python_scale_start(ab_scaler *scaler);
void ab_python_scale_grow(ab_scaler *scaler);
void ab_python_scale_lower(ab_scaler *scaler, double reduced);
bool ab_python_scale_too_large(const ab_scaler *scaler);

AB_END_DECLS

#endif
