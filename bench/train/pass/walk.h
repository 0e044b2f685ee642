/* The ops of a plan, prepared to run: operands, implementations, workspace. Used by forward.h
 * and backward.h. Independent of optimizers, scalers and the order of a step. */
#ifndef AB_BENCH_TRAIN_PASS_WALK_H
#define AB_BENCH_TRAIN_PASS_WALK_H

#include "bench/train/memory/memory.h"
#include "bench/train/observe/observation.h"
#include "bench/train/pass/step_times.h"

#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_walk {
    const ab_cell_memory *memory; /* borrowed */
    ab_observation *observation;  /* borrowed: is called for what runs */
    ab_op_io *io;                 /* [plan->nodes]: operands; unused for casts; owned */
    const ab_op **run;       /* [plan->nodes]: the implementation on this device; NULL for casts; owned */
    int fallbacks;           /* ops that run on the host because the device does not implement them */
    ab_exec exec;            /* common to all ops; its observer is NULL, ab_walk_exec adds the step's */
    uint64_t params_version; /* of the weights */
    uint64_t casts_version;  /* params_version that the half copies were made from and shown of */
    uint64_t copies_version; /* params_version of half copies that the update made */
    bool runs_casts;         /* casts and tails run one by one: somebody puts values in their place */
    bool input_is_cast;      /* the batch was written as the result of plan->input_cast */
    ab_step_times *times;    /* borrowed; NULL: steps are not timed */
    /* Called in the backward pass when node `node` and its gradients are done; NULL: by nobody. */
    ab_status (*passed)(void *context, int node);
    void *passed_context;
} ab_walk;

/* Prepares every op; `exec`: execution settings without workspace and observer. `walk` must be all zero.
 * Errors name the op. Free with ab_walk_fini, also after an error and before `memory`. */
AB_MUST_CHECK ab_status ab_walk_init(ab_walk *walk, const ab_cell_memory *memory, ab_observation *observation,
                                     const ab_exec *exec);
void ab_walk_fini(ab_walk *walk);

/* Bytes of workspace and state that ab_walk_init would allocate; allocates none of it and prepares one op
 * after the other. With exec->sizes_only the host's products are estimated (dnnl_shim.h), which costs
 * nanoseconds an op instead of milliseconds. `memory` may be described only. Errors name the op. */
AB_MUST_CHECK ab_status ab_walk_measure(const ab_cell_memory *memory, const ab_exec *exec, int64_t *bytes);

/* Marks prepared copies of the weights as outdated. */
static inline void ab_walk_weights_changed(ab_walk *walk) { walk->params_version++; }

/* Current execution settings with the step's observer; ab_walk_node_exec: for node `node`, where a frozen op
 * runs in eval mode and an op may have its own accumulator. */
ab_exec ab_walk_exec(const ab_walk *walk);
ab_exec ab_walk_node_exec(const ab_walk *walk, int node);

/* Whether the forward pass of node `head` does those of its tail (plan.h): where the op can, and nobody looks
 * at the step; the same of its backward pass. False for AB_NONE. */
bool ab_walk_is_fused(const ab_walk *walk, int head);
bool ab_walk_is_fused_backward(const ab_walk *walk, int head);

/* The same of the backward pass of node n and of the relu before it. */
bool ab_walk_fuses_front(const ab_walk *walk, int n);

/* Whether ops now pass by the casts beside them (plan_casts.c): on the host, where nobody looks at the step.
 */
bool ab_walk_passes_casts(const ab_walk *walk);

/* The tensor that a batch may be written to in place of the network's input, as that does no more than be
 * cast to it: NULL unless nobody looks at the step. Who does so sets input_is_cast. */
ab_tensor *ab_walk_cast_input(const ab_walk *walk);

/* Operands of node n; with `past`, in place of some of them the tensors behind casts, written to *copy.
 * Without it they are the walk's own, which a device that records calls may read later. */
ab_op_io *ab_walk_operands(const ab_walk *walk, int n, bool past, ab_op_io *copy);

/* The same without an observer. */
ab_exec ab_walk_unobserved(const ab_walk *walk);

/* Casts tensor `from` to tensor `to`; adds it. Half results are shown to the observer; the move is reported
 * to the watch as `kind` of op `net_op`. */
AB_MUST_CHECK ab_status ab_walk_cast(const ab_walk *walk, ab_move_kind kind, int net_op, bool backward,
                                     int to, int from);
AB_MUST_CHECK ab_status ab_walk_add(const ab_walk *walk, int net_op, int to, int from);

/* Prefixes the message of an error with the op's name. */
AB_MUST_CHECK ab_status ab_walk_in_op(const ab_net_op *op, ab_status status);

/* Position of the training: step counters, and the current micro-batch and loss. Plain data. */

typedef struct ab_step_position {
    int64_t steps;         /* including skipped ones */
    int64_t taken;         /* with an update */
    int64_t advanced;      /* number of times the schedule has advanced */
    int64_t micro_batches; /* batches per step and rank, at least 1; constant */
    int64_t micro;         /* current micro-batch of the step and rank */
    bool apart;            /* each micro-batch's gradients are its own: nothing accumulates; constant */
    int64_t ranks;         /* simulated ranks, at least 1; constant */
    int64_t rank;          /* current rank */
    int loss_id;           /* loss scaler of the current backward pass */
} ab_step_position;

AB_END_DECLS

#endif
