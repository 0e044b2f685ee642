/* A cell: one network under one policy on one device, ready to train. It owns the plan's memory, executes the
 * plan, and defines the order of a step: forward, loss x scale, backward, finite check on the scaled
 * gradients while unscaling, optimizer step or skip, scaler update. Independent of processes, files and
 * records. */
#ifndef AB_BENCH_TRAIN_CELL_CELL_H
#define AB_BENCH_TRAIN_CELL_CELL_H

#include "bench/amp/plan/plan.h"
#include "bench/amp/scaler/scaler.h"
#include "bench/data/data.h"
#include "bench/train/init/initial_weights.h"
#include "bench/train/observe/always_on_stats.h"
#include "bench/train/observe/observation.h"
#include "bench/train/pass/step_times.h"
#include "bench/train/recipe.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

typedef struct ab_cell_config {
    const ab_net *net;                     /* borrowed for the cell's lifetime */
    ab_policy policy;                      /* its loss_scale selects the scaler */
    double min_loss_scale, max_loss_scale; /* 0: the dialect's default */
    int64_t scale_window;
    const ab_optimizer *optimizer;
    ab_optimizer_config optim;
    ab_recipe recipe;
    int64_t batch; /* samples per (micro-)batch */
    uint64_t seed;
    const ab_data *data; /* borrowed; may be NULL if the cell is only planned */
    ab_normalize normalize;
    bool shuffled;
    bool accumulate_half;
    ab_cpu_path path;
    const char *init_file;        /* safetensors or npz, or NULL: the net's own initialisation */
    const char *init_map;         /* name map (init_map.h), or NULL */
    ab_perturbation perturbation; /* how initial weights are moved, for the noise floors */
    int draw;                     /* which of several random moves, from 0 */
    const ab_device *device;
    bool tf32;            /* fp32 products may round their operands to TF32 if the device supports it */
    bool no_graph;        /* the host decides every step, even if the device could */
    int64_t memory_limit; /* bytes; 0: none */
} ab_cell_config;

typedef struct ab_cell ab_cell;

/* Compiles the plan of such a cell; the caller destroys *plan. A pure function of shapes and settings. */
AB_MUST_CHECK ab_status ab_cell_compile(const ab_cell_config *config, ab_plan **plan);

/* The plan, and the bytes that the cell would hold by category, from shapes alone: nothing is allocated for
 * tensors, no weight is drawn, config->data is not read. Exact but for the workspace of products that a
 * library computes on the host, which is estimated (dnnl_shim.h). An --init file is opened for the names and
 * shapes of its tensors. The caller destroys *plan. Errors are those of ab_cell_create. */
AB_MUST_CHECK ab_status ab_cell_planned(const ab_cell_config *config, ab_plan **plan,
                                        int64_t bytes[AB_MEM_CATEGORY_COUNT]);

/* What the reduction over simulated ranks did to the gradients of probed steps: "steps", "tensors". Writes
 * nothing of a cell without ranks. */
void ab_cell_report_reduction(const ab_cell *cell, ab_probe_sink *sink);
/* Whether there is something to report. */
bool ab_cell_has_reduction(const ab_cell *cell);

/* Different samples in a batch of a rank, and the weight of its mean loss in the mean over ranks (1: as the
 * others). What the step itself uses. */
int64_t ab_cell_rank_samples(const ab_cell *cell, int64_t rank);
double ab_cell_rank_weight(const ab_cell *cell, int64_t rank);

/* Batches that this process runs in a step: micro-batches, of all ranks where they are simulated. */
int64_t ab_cell_batches(const ab_cell *cell);

/* Ranks that are processes: where the time of the reduction went so far, and what this rank sent: "steps",
 * "ops". */
void ab_cell_report_communication(const ab_cell *cell, ab_probe_sink *sink);
/* Whether there is something to report. */
bool ab_cell_communicates(const ab_cell *cell);

/* Ranks that are processes: compares the checksums of all ranks' trained weights (fp32 masters where there
 * are any), bit by bit of every rank's own copy, if that is due after the step that just ended
 * (recipe.ranks.check_every). All ranks must call it after every step. */
AB_MUST_CHECK ab_status ab_cell_check_ranks(ab_cell *cell);

/* Writes "every", "checks", "ranks", "parted": when, where and on which rank weights were not the same, as
 * far as the checks tell; null if they always were. */
void ab_cell_report_replicas(const ab_cell *cell, ab_probe_sink *sink);
/* Whether ranks are compared. */
bool ab_cell_checks_ranks(const ab_cell *cell);

/* Bytes that ranks add to a category of a plan: their gradients, and replicas for --sync-bn. workspace: bytes
 * of one rank's ops. */
int64_t ab_cell_rank_bytes(const ab_cell_config *config, const ab_plan *plan, ab_mem_category category,
                           int64_t workspace);

/* The exact bytes of the ops' workspace for a plan of such a cell: prepares every op, which may take seconds,
 * but allocates none of its memory. */
AB_MUST_CHECK ab_status ab_cell_workspace(const ab_cell_config *config, const ab_plan *plan, int64_t *bytes);

/* Compiles the plan, allocates memory, prepares the ops and sets the initial weights. *cell is owned by the
 * caller. */
AB_MUST_CHECK ab_status ab_cell_create(const ab_cell_config *config, ab_cell **cell);

/* Frees the cell; NULL is a no-op. */
void ab_cell_destroy(ab_cell *cell);

typedef struct ab_step_result {
    float loss;              /* unscaled; mean over micro-batches */
    double scale;            /* loss scale of the step */
    bool skipped;            /* the optimizer did not run */
    bool overflow;           /* a scaled gradient was non-finite (known only if the scaler checks) */
    double lr;               /* of the step, whether or not it was skipped */
    double grad_norm;        /* of all gradients before clipping; 0 without clipping by norm */
    int64_t correct, scored; /* rows of logits of the step's batches; 0 unless ab_cell_score_training */
    /* Per loss scaler (plan->scalers of them); a single one unless losses have their own scalers. */
    double scales[AB_NET_LOSSES]; /* loss scale of the step; scale is the first */
    unsigned overflows;           /* bit k: with scaler k a scaled gradient was not finite */
    bool replayed; /* the step was non-finite and was replayed for the watch: its time is not valid */
} ab_step_result;

/* One training step. With `observer` (NULL: none) the step is probed: `observer->see` gets the tensors of
 * ab_cell_observed_at by index, and the callbacks of ab_cell_watch are called. The loss does not depend on
 * the observer; a NaN loss always has the same bits. */
AB_MUST_CHECK ab_status ab_cell_step(ab_cell *cell, ab_observer *observer, ab_step_result *result);

/* Counts the training accuracy of the steps from now on. Nothing is counted without classes, or on a device
 * whose memory the host does not read. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_cell_score_training(ab_cell *cell);

/* The 2-norm of all unscaled gradients of the step that just ran, in double; NAN on such a device. Before
 * --clip-norm; --clip-value comes first. Not finite after an overflow. */
AB_MUST_CHECK ab_status ab_cell_gradient_norm(const ab_cell *cell, const ab_step_result *result,
                                              double *norm);

/* Runs `count` unprobed steps; equivalent to `count` calls of ab_cell_step. A device that decides steps
 * itself runs ab_cell_window() of them per launch and measures their times: time_ns[i], 0 where not
 * measured. */
AB_MUST_CHECK ab_status ab_cell_run_steps(ab_cell *cell, int count, ab_step_result *result, int64_t *time_ns);

/* Maximum number of steps that the device decides per launch; 1: the host decides every step. */
int ab_cell_window(const ab_cell *cell);

/* Sets what probed steps show from now on; NULL: gradients, the default of a new cell. Renumbers the observed
 * tensors. */
void ab_cell_watch(ab_cell *cell, const ab_watch *watch);

/* In addition to the watch, `follower->ran` is called for every op of every step from now on, probed or not;
 * NULL: off. Borrowed. */
void ab_cell_follow(ab_cell *cell, const ab_watch *follower);

/* Every step of ab_cell_step from now on adds the time of its parts to `times`; NULL: off. Borrowed. The
 * host's clock: not for a device that computes while the host goes on. */
void ab_cell_time(ab_cell *cell, ab_step_times *times);

/* Whether the last step left the half gradient of a parameter to the update, which widens it, uncast. */
bool ab_cell_left_half(const ab_cell *cell, int param);

/* Whether ops pass by the casts beside them (ab_plan_past) in steps that nobody looks at, forward or
 * backward. */
bool ab_cell_passes_casts(const ab_cell *cell, bool backward);
/* Whether the last batch was written as the result of the plan's input_cast. */
bool ab_cell_input_is_cast(const ab_cell *cell);

/* Copies from another cell of the same network: the parameters as its ops will read them in its next step
 * (rounded to that format), its running statistics and its batch position. Optimizer state and loss scale are
 * kept. */
AB_MUST_CHECK ab_status ab_cell_copy_weights(ab_cell *cell, const ab_cell *from);

/* Copies the whole training state: parameters as exactly as both formats allow, optimizer state, running
 * statistics, counters, and the loss scale if both use the same kind of scaler. Averaged weights are
 * kept. */
AB_MUST_CHECK ab_status ab_cell_copy_state(ab_cell *cell, const ab_cell *from);

/* Continues with the batches of step `step`. */
void ab_cell_seek(ab_cell *cell, int64_t step);

/* Stochastic rounding (unbiased; a function of seed, step and position) of the weights that have fp32 masters
 * to the model's format; with `masters` the masters too, as if there were none. Call between steps. *any:
 * false if no weight has a master. */
AB_MUST_CHECK ab_status ab_cell_round_weights(ab_cell *cell, uint64_t seed, bool masters, bool *any);

/* Forward and backward pass of the next step at `factor` times the loss scale; the follower is called.
 * Afterwards the cell is unchanged except its gradients, which the step itself recomputes. */
AB_MUST_CHECK ab_status ab_cell_dry_run(ab_cell *cell, double factor, float *loss);

/* Tensors that an observer sees: those of the roles in the watch. Their numbers are indices into this list;
 * borrowed until the next ab_cell_watch. */
int ab_cell_observed_count(const ab_cell *cell);
const ab_observed *ab_cell_observed_at(const ab_cell *cell, int i);

/* Trained parameters, numbered as in ab_update_block. */
int ab_cell_trained_count(const ab_cell *cell);
const ab_probe_param *ab_cell_trained_at(const ab_cell *cell, int i);

/* loss: for classifiers the mean cross entropy of the fp32 logits, in double, with the class weights, the
 * label smoothing and the ignore_index of the network's loss; otherwise the mean of the network's loss. */
typedef struct ab_eval_result {
    int64_t count;   /* rows of logits, or samples if the network has no classes */
    int64_t correct; /* -1 without classes */
    int64_t ranked;  /* rows of logits without NaN; the others count as wrong */
    double weight;   /* of the rows, by their classes: what the sum of losses is divided by */
    double loss;
} ab_eval_result;

/* Loss and accuracy on the first `limit` samples of a split (0: all), in the cell's own formats, batch norm
 * in eval mode. */
AB_MUST_CHECK ab_status ab_cell_evaluate(ab_cell *cell, ab_split split, int64_t limit,
                                         ab_eval_result *result);

/* The same with the averaged weights; the trained weights are restored afterwards. AB_CONFIG if the cell
 * keeps no averaged weights. */
AB_MUST_CHECK ab_status ab_cell_evaluate_ema(ab_cell *cell, ab_split split, int64_t limit,
                                             ab_eval_result *result);

/* The network's loss on batches with the samples' own targets, and with those of other samples. */
typedef struct ab_shuffled_result {
    int64_t batches;          /* 0: no loss reads targets, or there are fewer samples than a batch has */
    int shuffles;             /* per batch */
    double matched, shuffled; /* means of the network's loss */
    double error;             /* standard error of their difference if predictions know no targets */
} ab_shuffled_result;

/* Evaluates up to 8 batches, spread over the split and of at most about `limit` samples (0: all), and again
 * with the targets of each batch rolled by up to 8 distances; a target is all that belongs to a sample. Only
 * ops that depend on targets run again. */
AB_MUST_CHECK ab_status ab_cell_evaluate_shuffled(ab_cell *cell, ab_split split, int64_t limit,
                                                  ab_shuffled_result *result);

/* The training loss, in its own units, of the constant prediction that suits the targets best: those of up to
 * 64 training batches. Ops from the losses on run as in training, on the constant; no other op runs.
 * `constant->batches` is 0 if it is not defined: a loss depends on weights other than through the input of a
 * loss op whose best constant is known (op.h) and whose targets are data. At most about 2^24 numbers are read
 * and written beside the first batch. */
AB_MUST_CHECK ab_status ab_cell_constant_loss(ab_cell *cell, ab_always_on_constant *constant);

/* Writes the object "vitals" (always_on_stats.h): the statistics of every step, and of the weights at the
 * start and now. */
AB_MUST_CHECK ab_status ab_cell_report_always_on_stats(ab_cell *cell, ab_probe_sink *sink);

/* Reads a tensor as fp32 by the plan's name: "conv1.weight" (the master if there is one), "bn1.running_mean",
 * "conv1.weight.grad" (unscaled, as passed to the optimizer). Writes *shape and values (ab_shape_count
 * floats); values may be NULL to get the shape only. AB_CONFIG if there is no such tensor. */
AB_MUST_CHECK ab_status ab_cell_read(const ab_cell *cell, const char *name, ab_shape *shape, float *values);

/* Writes all parameters and buffers as fp32 safetensors with torch names and layouts. */
AB_MUST_CHECK ab_status ab_cell_save(const ab_cell *cell, const char *path);

/* Writes the gradients of the next step's batch, as the backward pass left them: scaled, each in its own
 * format, with torch names. Afterwards the cell is unchanged except its gradients. */
AB_MUST_CHECK ab_status ab_cell_save_gradients(ab_cell *cell, const char *path);

/* Writes everything that the next step depends on as safetensors: weights as stored, "<name>.master",
 * optimizer state by torch's names ("fc.weight.exp_avg"), running statistics; counters, scaler and schedule
 * as metadata. All values are exact. The file is replaced atomically: a concurrent reader, or a kill during
 * the write, sees either the old file or the complete new one. */
AB_MUST_CHECK ab_status ab_cell_checkpoint(const ab_cell *cell, const char *path);

/* Restores the state written by ab_cell_checkpoint into a new cell: its next steps are bit-identical to those
 * of the saved cell. Faults of the cell's recipe omit parts of the state. AB_INPUT lists the tensors or the
 * setting that differ; the cell is then unusable. */
AB_MUST_CHECK ab_status ab_cell_resume(ab_cell *cell, const char *path);

/* Number of steps of the cell that wrote the checkpoint, including skipped ones. */
AB_MUST_CHECK ab_status ab_checkpoint_steps(const char *path, int64_t *steps);

/* The plan, and the first loss scaler in its state before the next step; borrowed. */
const ab_plan *ab_cell_plan(const ab_cell *cell);
const ab_scaler *ab_cell_scaler(const ab_cell *cell);

/* Layers that scale the gradient they propagate (AdaLoss), in forward order, and their scales in the last
 * step. */
int ab_cell_layers(const ab_cell *cell);
const char *ab_cell_layer_name(const ab_cell *cell, int i);
const double *ab_cell_layer_scales(const ab_cell *cell);

/* Completed steps, taken and skipped; number of times the schedule has advanced. */
int64_t ab_cell_steps(const ab_cell *cell);
int64_t ab_cell_advanced(const ab_cell *cell);

/* Allocated bytes by category: the plan's prediction plus the ops' workspace. */
int64_t ab_cell_bytes(const ab_cell *cell, ab_mem_category category);
int64_t ab_cell_bytes_total(const ab_cell *cell);

/* Name of the implementation that runs a node's pass ("forward", "backward_data", "backward_weights"); NULL
 * if there is none. */
const char *ab_cell_describe(const ab_cell *cell, int node, const char *pass);

AB_END_DECLS

#endif
