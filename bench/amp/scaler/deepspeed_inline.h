/* The loss scaling inside DeepSpeed's fused and unfused fp16 optimizers
 * (runtime/fp16/{fused,unfused}_optimizer.py), used without ZeRO: window and order of update and unscaling as
 * in DynamicLossScaler, no hysteresis, no exception at the floor. The two differ in their defaults. */
#ifndef AB_BENCH_AMP_SCALER_DEEPSPEED_INLINE_H
#define AB_BENCH_AMP_SCALER_DEEPSPEED_INLINE_H

#include "bench/amp/scaler/scaler.h"

AB_BEGIN_DECLS

enum { AB_INLINE_INIT, AB_INLINE_WINDOW, AB_INLINE_MIN, AB_INLINE_KEYS };
enum { AB_INLINE_SINCE, AB_INLINE_STATES };

#define AB_INLINE_WINDOW_TEXT                                                                                \
    "the scale doubles when this many steps and one, or a multiple and one, have passed since the last "     \
    "overflow"

/* Names of the states of both kinds. */
extern const char *const ab_deepspeed_inline_states[AB_INLINE_STATES];

/* start, update and steps_until_change of ab_scaler_kind (scaler.h). */
void ab_deepspeed_inline_start(ab_scaler *scaler);
ab_scaler_outcome ab_deepspeed_inline_update(ab_scaler *scaler, const ab_scaler_seen *seen);
int64_t ab_deepspeed_inline_steps_until_change(const ab_scaler *scaler);

AB_END_DECLS

#endif
