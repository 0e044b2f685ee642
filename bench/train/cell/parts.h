/* What a cell is made of. Each part is a struct of its own with the functions that may touch it; parts that
 * need others borrow them. Files of this folder put the parts together (create.c), take steps with them
 * (step.c, replay.c, dry_run.c, window.c), evaluate, copy and read them; they alone, and checkpoints, see the
 * whole. */
#ifndef AB_BENCH_TRAIN_CELL_PARTS_H
#define AB_BENCH_TRAIN_CELL_PARTS_H

#include "bench/train/cell/batches.h"
#include "bench/train/cell/cell.h"
#include "bench/train/memory/memory.h"
#include "bench/train/memory/params.h"
#include "bench/train/observe/always_on_stats.h"
#include "bench/train/observe/observation.h"
#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/position.h"
#include "bench/train/pass/walk.h"
#include "bench/train/update/gradients.h"
#include "bench/train/update/loss_scalers.h"
#include "bench/train/update/update.h"

struct ab_cell {
    ab_cell_config config; /* as it was asked for */
    ab_plan *plan;         /* owned */
    ab_cell_memory memory;
    ab_trained_params trained;
    ab_step_position position;
    /* observation */
    ab_observation observation;
    ab_always_on_stats always_on;
    /* a pass */
    ab_batches batches;
    ab_walk walk;
    ab_layer_scales *layers; /* owned; NULL: no layer has a scale of its own */
    /* an update */
    ab_loss_scalers scalers;
    ab_gradients gradients;
    ab_weight_update update;
    struct ab_step_window *window; /* owned; NULL: the host decides every step */
};

#endif
