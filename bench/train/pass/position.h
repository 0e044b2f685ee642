/* Where training stands: counters of steps, and what of the step is under way. Plain data. */
#ifndef AB_BENCH_TRAIN_PASS_POSITION_H
#define AB_BENCH_TRAIN_PASS_POSITION_H

#include <stdint.h>

typedef struct ab_step_position {
    int64_t steps;         /* taken and skipped */
    int64_t taken;         /* with an update */
    int64_t advanced;      /* how often the schedule has */
    int64_t micro_batches; /* batches that make one step, at least 1; constant */
    int64_t micro;         /* micro-batch of the step under way */
    int loss_id;           /* the loss scaler whose backward pass is under way */
} ab_step_position;

#endif
