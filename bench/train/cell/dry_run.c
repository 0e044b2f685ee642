/* Forward and backward pass of the next step without an update. */
#include "bench/train/cell/gradient_pass.h"
#include "bench/train/cell/parts.h"
#include "bench/train/memory/running_stats.h"

#include <stdlib.h>

ab_status ab_cell_dry_run(ab_cell *cell, double factor, float *loss) {
    ab_scaler *scaler = cell->scalers.scaler;
    double scale[AB_NET_LOSSES] = {0};
    unsigned overflows;
    void *kept;
    AB_TRY(ab_running_stats_keep(&cell->memory, &kept));
    for (int k = 0; k < cell->scalers.count; k++) {
        scale[k] = scaler[k].scale;
        scaler[k].scale *= factor;
    }
    cell->observation.observer = NULL;
    cell->walk.exec.training = true;
    ab_status status = ab_gradient_pass_batches(cell, false, loss, &overflows);
    for (int k = 0; k < cell->scalers.count; k++) scaler[k].scale = scale[k];
    if (status == AB_OK) status = ab_running_stats_restore(&cell->memory, kept);
    free(kept);
    return status;
}
