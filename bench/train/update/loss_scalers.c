/* Initialises and updates loss scalers. */
#include "bench/train/update/loss_scalers.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>

void ab_loss_scalers_start(ab_loss_scalers *scalers, int count, const ab_scaler_config *settings,
                           const ab_scale_limits *limits) {
    const ab_scaler_config limited =
        ab_scaler_limited(settings, limits->min, limits->max, (double)limits->window);
    scalers->count = count;
    for (int k = 0; k < count; k++) ab_scaler_start(&scalers->scaler[k], &limited);
}

ab_status ab_loss_scalers_update(ab_loss_scalers *scalers, int k, int64_t step, const ab_scaler_seen *seen,
                                 bool *skipped) {
    ab_scaler *scaler = &scalers->scaler[k];
    const ab_scaler_outcome outcome = ab_scaler_update(scaler, seen);
    char which[32] = "";
    *skipped = *skipped || outcome.skip;
    if (!outcome.fault || (!outcome.fault->raises && isfinite(scaler->scale))) return AB_OK;
    if (scalers->count > 1) ab_text_show(which, sizeof which, " of loss_id %d", k);
    return ab_fail(AB_CONFIG, "step %lld: loss scaler %s%s%s (%s): %s", (long long)step, scaler->kind->name,
                   which, outcome.fault->raises ? " raises" : "", outcome.fault->name, outcome.fault->text);
}
