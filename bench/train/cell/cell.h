/* A cell: one network under one policy on one device, ready to be stepped. It owns the plan's memory, walks
 * the plan, and keeps the order of a step: forward, loss x scale, backward, finite check on the scaled
 * gradients while unscaling, optimizer step or skip, scaler update. It knows nothing of processes, files or
 * records. */
#ifndef AB_BENCH_TRAIN_CELL_CELL_H
#define AB_BENCH_TRAIN_CELL_CELL_H

#include "bench/amp/plan/plan.h"
#include "bench/amp/scaler/scaler.h"
#include "bench/data/data.h"
#include "bench/train/observe/observed.h"
#include "bench/train/recipe.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

typedef struct ab_cell_config {
    const ab_net *net;                     /* borrowed for the cell's life */
    ab_policy policy;                      /* its loss_scale chooses the scaler */
    double min_loss_scale, max_loss_scale; /* 0: the dialect's default */
    int64_t scale_window;
    const ab_optimizer *optimizer;
    ab_optimizer_config optim;
    ab_recipe recipe;
    int64_t batch; /* samples of a (micro-)batch */
    uint64_t seed;
    const ab_data *data; /* borrowed; may be NULL for a cell that is only planned */
    ab_normalize normalize;
    bool shuffled;
    bool accumulate_half;
    ab_cpu_path path;
    const char *init_file;   /* safetensors or npz, or NULL for the net's own initialisation */
    const char *init_map;    /* table of names (init_map.h), or NULL */
    bool perturbed_baseline; /* every initial weight moved by one ulp */
    const ab_device *device;
    bool tf32;            /* fp32 products may round their operands to TF32, where the device has it */
    bool no_graph;        /* the host decides every step, also on a device that could itself */
    int64_t memory_limit; /* bytes; 0: none */
} ab_cell_config;

typedef struct ab_cell ab_cell;

/* Compiles the plan, allocates, prepares the ops, sets the initial weights. */
AB_MUST_CHECK ab_status ab_cell_create(const ab_cell_config *config, ab_cell **cell);

/* Frees all of it; NULL is a no-op. */
void ab_cell_destroy(ab_cell *cell);

typedef struct ab_step_result {
    float loss;       /* unscaled; of micro-batches the mean */
    double scale;     /* in force during the step */
    bool skipped;     /* the optimizer did not run */
    bool overflow;    /* a scaled gradient was not finite (known only if the scaler checks) */
    double lr;        /* in force, or that would have been */
    double grad_norm; /* of all gradients as they were clipped; 0 without clipping by norm */
    /* Where losses have their own scalers (plan->scalers of them); of the first alone otherwise. */
    double scales[AB_NET_LOSSES]; /* in force during the step; scale is the first */
    unsigned overflows;           /* bit k: with scaler k a scaled gradient was not finite */
    bool replayed; /* it ended in no numbers and was run a second time for the watch: its time says nothing */
} ab_step_result;

/* One training step. With `observer` (NULL: none) the step is probed: `observer->see` gets the tensors of
 * ab_cell_observed by their numbers, and the functions of ab_cell_watch are called. The loss does not depend
 * on it; a loss that is not a number is always the same NaN. */
AB_MUST_CHECK ab_status ab_cell_step(ab_cell *cell, ab_observer *observer, ab_step_result *result);

/* `count` unprobed steps, one after the other, the same as so many calls of ab_cell_step. A device that
 * decides steps itself gets ab_cell_window() of them at once and tells their times: time_ns[i]; 0 where it
 * did not measure. */
AB_MUST_CHECK ab_status ab_cell_take(ab_cell *cell, int count, ab_step_result *result, int64_t *time_ns);

/* Most steps that the device decides at once; 1: the host decides every step. */
int ab_cell_window(const ab_cell *cell);

/* What probed steps show from now on; NULL: gradients, as a new cell does. Numbers the observed
 * tensors anew. */
void ab_cell_watch(ab_cell *cell, const ab_watch *watch);

/* Besides the watch: `follower->ran` hears of every op of every step from now on, probed or not; NULL: nobody
 * does. Borrowed. */
void ab_cell_follow(ab_cell *cell, const ab_watch *follower);

/* Gives a cell of the same network the parameters that the ops of another one will read in its next step
 * (rounded as they read them), its running statistics, and its place among the batches. Optimizer and loss
 * scale stay. */
AB_MUST_CHECK ab_status ab_cell_copy_weights(ab_cell *cell, const ab_cell *from);

/* The same of everything that training goes on from: parameters as exactly as both can hold them, optimizer
 * state, running statistics, counters, and the loss scale where the two have one scaler. Averages of weights
 * stay. */
AB_MUST_CHECK ab_status ab_cell_copy_state(ab_cell *cell, const ab_cell *from);

/* Goes on with the batches of another step. */
void ab_cell_seek(ab_cell *cell, int64_t step);

/* Rounds the weights that have fp32 masters to the model's format, up or down by chance (seed, step and place
 * decide) and right on average; with `masters` the masters, too, as if there were none. Between steps. False:
 * no weight has one. */
AB_MUST_CHECK ab_status ab_cell_round_weights(ab_cell *cell, uint64_t seed, bool masters, bool *any);

/* The forward and backward pass of the next step, at `factor` times the loss scale, heard by the follower;
 * then the cell is as it was but for its gradients, which the step itself makes anew. */
AB_MUST_CHECK ab_status ab_cell_dry_run(ab_cell *cell, double factor, float *loss);

/* Tensors an observer sees: the roles that the watch asks for. Numbers are places in this list; borrowed
 * until the next ab_cell_watch. */
int ab_cell_observed_count(const ab_cell *cell);
const ab_observed *ab_cell_observed_at(const ab_cell *cell, int i);

/* Trained parameters, numbered as in ab_update_block. */
int ab_cell_trained_count(const ab_cell *cell);
const ab_probe_param *ab_cell_trained_at(const ab_cell *cell, int i);

/* loss: of classes, the mean of the cross entropy of the fp32 logits, in double, without class weights; else
 * the mean of the network's loss. */
typedef struct ab_eval_result {
    int64_t count;   /* rows of logits, or samples of networks that score no classes */
    int64_t correct; /* -1 for those */
    double loss;
} ab_eval_result;

/* Accuracy on the first `limit` samples of a split (0: all), in the cell's own formats, batch norm in eval
 * mode. */
AB_MUST_CHECK ab_status ab_cell_evaluate(ab_cell *cell, ab_split split, int64_t limit,
                                         ab_eval_result *result);

/* The same with the averaged weights in place of the trained ones, which are put back. AB_CONFIG if none are
 * kept. */
AB_MUST_CHECK ab_status ab_cell_evaluate_ema(ab_cell *cell, ab_split split, int64_t limit,
                                             ab_eval_result *result);

/* Writes the object "vitals" (always_on_stats.h): what was noticed at every step, and the weights as they
 * were and are. */
AB_MUST_CHECK ab_status ab_cell_report_always_on_stats(ab_cell *cell, ab_probe_sink *sink);

/* Reads a tensor as fp32 by the plan's name: "conv1.weight" (the master if there is one), "bn1.running_mean",
 * "conv1.weight.grad" (unscaled, as the optimizer got it). *shape and values (ab_shape_count floats) are
 * written; values may be NULL to ask for the shape. AB_CONFIG if there is no such tensor. */
AB_MUST_CHECK ab_status ab_cell_read(const ab_cell *cell, const char *name, ab_shape *shape, float *values);

/* All parameters and buffers as fp32 safetensors, torch names and layouts. */
AB_MUST_CHECK ab_status ab_cell_save(const ab_cell *cell, const char *path);

/* Everything that the next step depends on, as safetensors: weights as stored, "<name>.master", optimizer
 * state by torch's names ("fc.weight.exp_avg"), running statistics; counters, scaler and schedule as
 * metadata. All values exact. A reader, and a process that is killed meanwhile, leaves the old file or the
 * whole new one. */
AB_MUST_CHECK ab_status ab_cell_checkpoint(const ab_cell *cell, const char *path);

/* Puts a new cell into the state that ab_cell_checkpoint wrote: its next steps have the bits of those of the
 * cell that was saved. The faults of the cell's recipe leave parts out. AB_INPUT lists the tensors that
 * differ, or names what else does; the cell is then unusable. */
AB_MUST_CHECK ab_status ab_cell_resume(ab_cell *cell, const char *path);

/* Steps that a checkpoint's cell had done, skipped ones too. */
AB_MUST_CHECK ab_status ab_checkpoint_steps(const char *path, int64_t *steps);

/* The plan that is walked, and the first loss scaler as the next step finds it; borrowed. */
const ab_plan *ab_cell_plan(const ab_cell *cell);
const ab_scaler *ab_cell_scaler(const ab_cell *cell);

/* Layers that scale the gradient they pass back (AdaLoss), in the order of the forward pass, and their scales
 * in the last step. */
int ab_cell_layers(const ab_cell *cell);
const char *ab_cell_layer_name(const ab_cell *cell, int i);
const double *ab_cell_layer_scales(const ab_cell *cell);

/* Steps that are over, taken and skipped; how often the schedule has advanced. */
int64_t ab_cell_steps(const ab_cell *cell);
int64_t ab_cell_advanced(const ab_cell *cell);

/* Bytes held by category: equal to what the plan predicts plus the ops' workspace. */
int64_t ab_cell_bytes(const ab_cell *cell, ab_mem_category category);
int64_t ab_cell_bytes_total(const ab_cell *cell);

/* Which implementation runs a node's pass ("forward", "backward_data", "backward_weights"); NULL if there is
 * none. */
const char *ab_cell_describe(const ab_cell *cell, int node, const char *pass);

AB_END_DECLS

#endif
