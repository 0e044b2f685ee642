/* The parts of a cell. Each part is a struct with its own functions; parts borrow the parts they need. The
 * files of this folder, including checkpoint.c, create the parts (create.c), run steps (step.c,
 * window.c), and evaluate, copy and read them; only these files include the whole struct. */
#ifndef AB_BENCH_TRAIN_CELL_PARTS_H
#define AB_BENCH_TRAIN_CELL_PARTS_H

#include "bench/train/cell/batches.h"
#include "bench/train/cell/cell.h"
#include "bench/train/cell/score.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"
#include "bench/train/observe/observation.h"
#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/walk.h"
#include "bench/train/ranks/rank_gradients.h"
#include "bench/train/update/gradients.h"
#include "bench/train/update/update.h"
#include "kernels/collective/replicas.h"

/* What the comparisons of ranks' weights found. */
typedef struct ab_replica_checks {
    int64_t checks, agreed; /* steps that had been made at the last check without a difference */
    int64_t step;           /* at the first check with one; 0: there was none */
    ab_parting parting;
} ab_replica_checks;

struct ab_cell {
    ab_cell_config config; /* as passed to ab_cell_create */
    ab_plan *plan;         /* owned */
    ab_cell_memory memory;
    ab_trained_params trained;
    ab_step_position position;
    /* observation */
    ab_observation observation;
    ab_always_on_stats always_on;
    /* passes */
    ab_batches batches;
    ab_training_score score;
    ab_walk walk;
    ab_layer_scales *layers; /* owned; NULL: no per-layer scales */
    /* update */
    ab_loss_scalers scalers;
    ab_gradients gradients;
    ab_rank_gradients ranks;
    ab_replica_checks replicas;
    struct ab_sync *sync; /* owned; NULL: batch norms are not synchronised */
    ab_weight_update update;
    struct ab_step_window *window; /* owned; NULL: the host decides every step */
};

#endif
