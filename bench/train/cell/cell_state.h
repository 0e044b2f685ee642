/* What a cell is made of: shared by cell.c (birth and death), cell_step.c (walking the plan), cell_update.c (unscaling and the
 * optimizer), cell_init.c (initial weights), cell_watch.c (who sees what) and cell_read.c (looking inside). Nobody else
 * includes this. Tensors may live on a device: they are touched through cell->backend and ab_tensor_read/write alone. */
#ifndef AB_BENCH_TRAIN_CELL_CELL_STATE_H
#define AB_BENCH_TRAIN_CELL_CELL_STATE_H

#include "bench/train/cell/always_on_stats.h"
#include "bench/train/cell/cell.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/host_mirror.h"

/* Numbers under which a parameter's values are shown; -1: not wanted, or not trained. */
typedef struct ab_shown {
    int trained; /* place among the trained parameters */
    int unscaled, weight, state[AB_OPTIMIZER_STATES];
} ab_shown;

struct ab_cell {
    ab_cell_config config;
    ab_plan *plan;
    ab_mem *mem;
    const ab_backend *backend;
    ab_tensor *tensor; /* [plan->tensors] */
    ab_op_io *io;      /* [plan->nodes]; unused for casts */
    const ab_op **run; /* [plan->nodes]: what runs the op on this device; NULL for casts */
    ab_host_mirror *
        *shadow;   /* [plan->nodes]: host copies for those who read operands; NULL until they are wanted */
    int fallbacks; /* ops that run on the host because the device has none */
    void *batch;   /* where the host writes the samples and labels of a batch: the input tensors, or */
    void *labels;  /* memory of its own that is uploaded */
    struct ab_cell_window *window; /* NULL: the host decides every step */
    struct ab_cell_layers *layers; /* NULL: no layer has a scale of its own */
    ab_exec exec;
    ab_scaler scaler[AB_NET_LOSSES]; /* [plan->scalers] */
    ab_data_order order;
    int64_t *index; /* [batch]: samples of the step under way */
    ab_watch watch;
    bool again;               /* the step under way runs a second time, for the watch */
    bool rehearses;           /* forward and backward of a step that has not begun */
    const ab_watch *follower; /* its `ran` hears of all ops, probed or not; NULL: nobody */
    ab_observed *observed;
    int observed_count;
    struct ab_census *census;   /* room for one that the device takes; NULL until one is wanted */
    ab_shown *shown;            /* [plan->params] */
    ab_unscale_item *unscale;   /* [trained_count] */
    ab_update_item *update;     /* [trained_count] */
    ab_optimizer_config *optim; /* [trained_count]: each parameter's at the highest rate */
    ab_tensor **grad;           /* [trained_count]: unscaled gradients, for clipping */
    ab_probe_param *trained;
    int trained_count;
    int64_t steps, taken, advanced;         /* advanced: how often the schedule has */
    int64_t ahead;                          /* steps that a window has begun since */
    int64_t micro;                          /* micro-batch of the step under way */
    int pass;                               /* scaler whose losses' backward pass is under way */
    uint64_t params_version, casts_version; /* of the weights, and of their half copies */
    ab_always_on_stats always_on;
};

/* Lists what is unscaled and updated. */
AB_MUST_CHECK ab_status ab_cell_update_start(ab_cell *cell);

/* Batches that make one step. */
static inline int64_t ab_cell_micro_batches(const ab_cell *cell) {
    return cell->config.recipe.micro_batches > 1 ? cell->config.recipe.micro_batches : 1;
}

/* After a micro-batch's backward pass: adds what is summed elsewhere than where it was made. */
AB_MUST_CHECK ab_status ab_cell_gather(ab_cell *cell);

/* Multiplies the unscaled gradients by a factor. */
AB_MUST_CHECK ab_status ab_cell_rescale(ab_cell *cell, double factor);

/* After unscaling, for scalers that follow the size of the gradients: the largest magnitude, and how many elements lie above the
 * scaler's edge (a share of fp16's largest number) when scaled. Of the weights' gradients, before clipping. */
AB_MUST_CHECK ab_status ab_cell_measure(const ab_cell *cell, ab_scaler_seen *seen);

/* After the last backward pass: unscales every gradient; *found: a scaled one was not finite; *overflow: and the scaler looks at
 * that. Where gradients are left alone (a fixed scale of 1 without masters) only the small ones are looked at, and only if
 * the watch may ask for the step again: `found` is a hint then. */
AB_MUST_CHECK ab_status ab_cell_unscale(ab_cell *cell, bool *found, bool *overflow);

/* A copy of the running statistics, in memory that the caller frees; and putting it back. */
AB_MUST_CHECK ab_status ab_cell_keep_buffers(const ab_cell *cell, void **copy);
AB_MUST_CHECK ab_status ab_cell_put_buffers(ab_cell *cell, const void *copy);

/* Losses with their own scales: after the backward pass of scaler `pass` its gradients are unscaled and added to those of the
 * passes before. */
AB_MUST_CHECK ab_status ab_cell_unscale_pass(ab_cell *cell, bool *overflow);

/* Whether losses have their own scales, so that there is a backward pass for each. */
static inline bool ab_cell_own_scales(const ab_cell *cell) { return cell->plan->scalers > 1; }

/* What a backward pass writes where it does not come: nothing, or zeros where another one's gradient would stay. */
AB_MUST_CHECK ab_status ab_cell_zero_unreached_grads(ab_cell *cell, int node);

/* Clips the gradients as they are now. */
AB_MUST_CHECK ab_status ab_cell_clip(ab_cell *cell, bool scaled, double *norm);

/* What the schedule says of this step. */
ab_schedule_point ab_cell_rate(const ab_cell *cell);

/* Trained parameter i's configuration when the schedule has advanced so often. */
ab_optimizer_config ab_cell_optimizer_at(const ab_cell *cell, int i, int64_t advanced);

/* The backend's cast and accumulate, or the host's where it has none for these formats. */
AB_MUST_CHECK ab_status ab_cell_cast(const ab_cell *cell, const ab_exec *exec, ab_tensor *dst,
                                     const ab_tensor *src);
AB_MUST_CHECK ab_status ab_cell_add(const ab_cell *cell, ab_tensor *dst, const ab_tensor *src);

/* The whole forward pass; the whole backward pass, from loss gradients that are there. */
AB_MUST_CHECK ab_status ab_cell_forward(ab_cell *cell);
AB_MUST_CHECK ab_status ab_cell_backward(ab_cell *cell);

/* Steps that the device decides itself, where it can (cell_window.c); after everything else of the cell was built. */
AB_MUST_CHECK ab_status ab_cell_window_start(ab_cell *cell);
void ab_cell_window_stop(ab_cell *cell);

/* Layers with their own scales (cell_layers.c), where the scaler is of that kind; nothing otherwise. Before a backward pass; in place of
 * an op's backward; behind a cast's; before two gradients are added; what a parameter's gradient is to be divided by. */
AB_MUST_CHECK ab_status ab_cell_layers_start(ab_cell *cell);
void ab_cell_layers_stop(ab_cell *cell);
void ab_cell_layers_begin(ab_cell *cell);
AB_MUST_CHECK ab_status ab_cell_layers_backward(ab_cell *cell, int node, const ab_exec *exec);
void ab_cell_layers_cast(ab_cell *cell, int to, int from);
AB_MUST_CHECK ab_status ab_cell_layers_meet(ab_cell *cell, const char *where, int to, int from);
double ab_cell_layers_chain(const ab_cell *cell, int param);
ab_scaler *ab_cell_layer_scaler(const ab_cell *cell, int i);

/* One optimizer step on every trained parameter. */
AB_MUST_CHECK ab_status ab_cell_update(ab_cell *cell);

/* Writes the batch of cell->index, with the faults of the recipe that are in the data, and notes what it is like. */
AB_MUST_CHECK ab_status ab_cell_fill(ab_cell *cell, ab_split split, void *samples, void *targets);

/* Notes the weights as they are now. */
AB_MUST_CHECK ab_status ab_cell_weigh(const ab_cell *cell, ab_always_on_weights *weights);

/* Shows a stored tensor under a number, if the step is probed and id >= 0. */
AB_MUST_CHECK ab_status ab_cell_observe(ab_cell *cell, const ab_tensor *tensor, int id);

/* Sets parameters, buffers and masters. */
AB_MUST_CHECK ab_status ab_cell_set_initial(ab_cell *cell);

/* Lists the trained parameters and numbers what a new cell shows. */
AB_MUST_CHECK ab_status ab_cell_watch_start(ab_cell *cell);

/* Name of a parameter: "conv1.weight", into name[AB_PLAN_NAME]. */
const char *ab_cell_param_name(const ab_cell *cell, const ab_plan_param *param, char *name);

static inline const ab_param_spec *ab_cell_param_spec(const ab_cell *cell, const ab_plan_param *param) {
    return &cell->plan->net->op[param->net_op].param[param->index];
}

#endif
