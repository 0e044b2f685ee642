/* Position of the training: step counters, and the current micro-batch and loss. Plain data. */
#ifndef AB_BENCH_TRAIN_PASS_POSITION_H
#define AB_BENCH_TRAIN_PASS_POSITION_H

#include <stdint.h>

typedef struct ab_step_position {
    int64_t steps;         /* including skipped ones */
    int64_t taken;         /* with an update */
    int64_t advanced;      /* number of times the schedule has advanced */
    int64_t micro_batches; /* batches per step, at least 1; constant */
    int64_t micro;         /* current micro-batch of the step */
    int loss_id;           /* loss scaler of the current backward pass */
} ab_step_position;

#endif
