/* The loss scalers of a cell: one, or one for each loss (apex's num_losses). Scales of single layers are in
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

/* Starts `count` scalers of these settings, and the limits where the dialect has such a key and the settings
 * do not name it. */
void ab_loss_scalers_start(ab_loss_scalers *scalers, int count, const ab_scaler_config *settings,
                           const ab_scale_limits *limits);

/* Tells scaler k what step `step` was like; *skipped becomes true if the step is to be skipped. AB_CONFIG
 * where the original raises, or where the scale becomes no finite number, for every later step would be
 * skipped. */
AB_MUST_CHECK ab_status ab_loss_scalers_update(ab_loss_scalers *scalers, int k, int64_t step,
                                               const ab_scaler_seen *seen, bool *skipped);

AB_END_DECLS

#endif
