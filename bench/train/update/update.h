/* The optimizer step: trained weights, their copies in the model's format, their averages. Gradients are read
 * as they are. */
#ifndef AB_BENCH_TRAIN_UPDATE_UPDATE_H
#define AB_BENCH_TRAIN_UPDATE_UPDATE_H

#include "bench/train/memory/memory.h"
#include "bench/train/memory/params.h"
#include "bench/train/observe/observation.h"
#include "bench/train/recipe.h"
#include "bench/train/update/gradients.h"

AB_BEGIN_DECLS

typedef struct ab_weight_update {
    const ab_cell_memory *memory;      /* borrowed, as are the next four */
    const ab_observation *observation; /* is shown the update, where it wants to */
    const ab_trained_params *trained;
    const ab_optimizer *optimizer;
    const ab_recipe *recipe;    /* schedule and averages */
    ab_optimizer_config common; /* of all parameters, at the highest rate */
    ab_optimizer_config *own;   /* [trained->count]: each parameter's, by its group; owned */
    ab_update_item *item;       /* [trained->count]; owned */
} ab_weight_update;

/* `update` must be all zero but for the borrowed pointers and `common`, which the caller sets. AB_NO_MEMORY.
 * Free with ab_weight_update_fini, also after an error. */
AB_MUST_CHECK ab_status ab_weight_update_init(ab_weight_update *update, const ab_gradients *gradients);
void ab_weight_update_fini(ab_weight_update *update);

/* The rate (and momentum, -1: not set) when the schedule has advanced so often. */
ab_schedule_point ab_weight_update_rate(const ab_weight_update *update, int64_t advanced);

/* Trained parameter i's configuration then. */
ab_optimizer_config ab_weight_update_config(const ab_weight_update *update, int i, int64_t advanced);

/* Step number `taken` (1: the first) on every trained parameter. `unobserved`: how casts run that nobody
 * sees. */
AB_MUST_CHECK ab_status ab_weight_update_run(const ab_weight_update *update, const ab_exec *unobserved,
                                             int64_t taken, int64_t advanced);

AB_END_DECLS

#endif
