/* The optimizer step: updates the trained weights, their copies in the model's format and their averages.
 * Reads unscaled gradients. */
#ifndef AB_BENCH_TRAIN_UPDATE_UPDATE_H
#define AB_BENCH_TRAIN_UPDATE_UPDATE_H

#include "bench/amp/plan/plan.h"
#include "bench/amp/scaler/scaler.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/observation.h"
#include "bench/train/recipe.h"
#include "bench/train/update/gradients.h"

AB_BEGIN_DECLS

typedef struct ab_weight_update {
    const ab_cell_memory *memory;      /* borrowed, as are the next five */
    const ab_observation *observation; /* is called with the update if it observes updates */
    const ab_trained_params *trained;
    const ab_optimizer *optimizer;
    const ab_recipe *recipe; /* schedule and averages */
    const ab_gradients *gradients;
    ab_optimizer_config common; /* of all parameters, at the maximum rate */
    ab_optimizer_config *own;   /* [trained->count]: per parameter, after its groups; owned */
    ab_update_item *item;       /* [trained->count]; owned */
    ab_tensor **grad;           /* [trained->count]; owned: the items' gradients */
    bool half_copies;           /* a run makes all half copies of fp32 weights that ops read */
} ab_weight_update;

/* `update` must be all zero except the borrowed pointers and `common`, which the caller sets. AB_NO_MEMORY.
 * Free with ab_weight_update_fini, also after an error. */
AB_MUST_CHECK ab_status ab_weight_update_init(ab_weight_update *update);
void ab_weight_update_fini(ab_weight_update *update);

/* The rate (and momentum, -1: not set) after `advanced` advances of the schedule. */
ab_schedule_point ab_weight_update_rate(const ab_weight_update *update, int64_t advanced);

/* Configuration of trained parameter i after `advanced` advances. */
ab_optimizer_config ab_weight_update_config(const ab_weight_update *update, int i, int64_t advanced);

/* Whether the step that is running may leave gradients to be unscaled by the update: its formula can, and
 * nobody observes gradients or update. */
bool ab_weight_update_unscales(const ab_weight_update *update);

/* Runs step number `taken` (1: the first) on every trained parameter, and rounds the copies that the model
 * uses. `unobserved`: execution settings of casts that are not observed. */
AB_MUST_CHECK ab_status ab_weight_update_run(const ab_weight_update *update, const ab_exec *unobserved,
                                             int64_t taken, int64_t advanced);

/* The loss scalers of a cell: one, or one per loss (apex's num_losses). Per-layer scales are in
 * pass/layer_scales.h. */

typedef struct ab_loss_scalers {
    int count; /* plan->scalers */
    ab_scaler scaler[AB_NET_LOSSES];
} ab_loss_scalers;

/* Limits that a run sets for all cells; 0: the dialect's default. */
typedef struct ab_scale_limits {
    double min, max;
    int64_t window;
} ab_scale_limits;

/* Initialises `count` scalers with `settings`, and applies the limits whose key the dialect has and the
 * settings do not set. */
void ab_loss_scalers_start(ab_loss_scalers *scalers, int count, const ab_scaler_config *settings,
                           const ab_scale_limits *limits);

/* Updates scaler k with the outcome `seen` of step `step`; sets *skipped if the step must be skipped.
 * AB_CONFIG if the original raises an exception, or if the scale becomes NaN or inf, since every later step
 * would be skipped. */
AB_MUST_CHECK ab_status ab_loss_scalers_update(ab_loss_scalers *scalers, int k, int64_t step,
                                               const ab_scaler_seen *seen, bool *skipped);

AB_END_DECLS

#endif
