/* The loss scalers of a cell: one, or one per loss (apex's num_losses). Per-layer scales are in
 * pass/layer_scales.h. */
#ifndef AB_BENCH_TRAIN_UPDATE_LOSS_SCALERS_H
#define AB_BENCH_TRAIN_UPDATE_LOSS_SCALERS_H

#include "bench/amp/plan/plan.h"
#include "bench/amp/scaler/scaler.h"

AB_BEGIN_DECLS

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
