/* How steps are taken beside the network, the level and the optimizer's formula: schedule, clipping,
 * accumulation, parameter groups, averaged weights, and the mistakes that are made on purpose. All zero: one
 * batch a step, a constant rate, nothing clipped. Plain data. */
#ifndef AB_BENCH_TRAIN_RECIPE_H
#define AB_BENCH_TRAIN_RECIPE_H

#include "bench/train/fault.h"
#include "bench/train/optim/clip.h"
#include "bench/train/optim/groups.h"
#include "bench/train/schedule/schedule.h"

AB_BEGIN_DECLS

typedef struct ab_recipe {
    const ab_schedule *schedule; /* NULL: the optimizer's rate at every step */
    ab_schedule_config rates;
    bool schedule_on_skip; /* the schedule advances at skipped steps too, which is wrong */
    ab_clip_config clip;
    int64_t micro_batches; /* batches whose gradients make one step; 0 means 1 */
    ab_param_groups groups;
    unsigned faults;  /* AB_FAULT_... */
    double ema_decay; /* of averaged weights (policy.keep.ema_format says where); 0: none */
} ab_recipe;

AB_END_DECLS

#endif
