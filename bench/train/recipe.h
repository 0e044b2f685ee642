/* Settings of a step other than network, level and optimizer: schedule, clipping, accumulation, parameter
 * groups, averaged weights, and injected faults. All zero: one batch per step, constant learning rate, no
 * clipping. Plain data. */
#ifndef AB_BENCH_TRAIN_RECIPE_H
#define AB_BENCH_TRAIN_RECIPE_H

#include "bench/train/fault.h"
#include "bench/train/optim/clip.h"
#include "bench/train/optim/groups.h"
#include "bench/train/schedule/schedule.h"
#include "kernels/collective/collective.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Simulated data parallelism. */
typedef struct ab_rank_recipe {
    int64_t count;          /* ranks, each with batches of its own; 0 means 1: no reduction */
    ab_reduction reduction; /* wire NULL: each gradient's own format */
    ab_reduce_every every;  /* acts with several micro-batches */
    double bucket_bytes;
    int64_t
        last_samples;    /* of the batches of the last rank, which repeat them; 0: as many as of the others */
    int64_t check_every; /* steps after which the weights of all ranks are compared; 0: never */
    ab_sync_form
        sync_bn; /* batch norms share statistics over ranks as a framework's; AB_SYNC_NONE: each its own */
} ab_rank_recipe;

typedef struct ab_recipe {
    const ab_schedule *schedule; /* NULL: constant learning rate */
    ab_schedule_config rates;
    bool schedule_on_skip; /* the schedule also advances at skipped steps, which is wrong */
    ab_clip_config clip;
    int64_t micro_batches; /* batches per step; 0 means 1 */
    ab_rank_recipe ranks;
    ab_param_groups groups;
    unsigned faults;  /* AB_FAULT_... */
    double ema_decay; /* of averaged weights (format: policy.keep.ema_format); 0: none */
} ab_recipe;

AB_END_DECLS

#endif
