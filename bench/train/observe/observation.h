/* Observers of a cell: the watch of probed steps, the follower of all steps, and the ids under which tensors
 * are shown (below). Values are only read. */
#ifndef AB_BENCH_TRAIN_OBSERVE_OBSERVATION_H
#define AB_BENCH_TRAIN_OBSERVE_OBSERVATION_H

#include "bench/amp/plan/plan.h"
#include "bench/train/memory/memory.h"
#include "bench/train/optim/optimizer.h"
#include "kernels/backend/fallback.h"
#include "probes/watch.h"

AB_BEGIN_DECLS

/* Description of a tensor that observers are shown. */

typedef struct ab_observed {
    char name[AB_PLAN_NAME]; /* the same at every level */
    const char *layer;       /* borrowed from the net */
    ab_probe_role role;
    bool cast; /* stored in the half format, or cast to it for the ops */
} ab_observed;

/* Ids under which a parameter's values are shown; -1: not shown, or not trained. */
typedef struct ab_param_ids {
    int unscaled, weight, state[AB_OPTIMIZER_STATES];
} ab_param_ids;

typedef struct ab_observation {
    const ab_cell_memory *memory;  /* borrowed; the ids of its tensors are set here */
    const ab_optimizer *optimizer; /* borrowed: names of its states */
    ab_watch watch;                /* what probed steps show */
    const ab_watch *follower;      /* borrowed: its `ran` is called for all ops, probed or not; NULL: none */
    ab_observer *observer;         /* of the current step; NULL: not probed */
    bool is_replay;                /* the current step is being replayed for the watch */
    ab_observed *observed;         /* [count]; owned */
    int count;
    ab_param_ids *ids;          /* [plan->params]; owned */
    ab_host_mirror **op_mirror; /* [plan->nodes]: host mirrors of an op's tensors; NULL until needed */
} ab_observation;

/* Starts with gradients shown, as after ab_observation_watch(NULL). `observation` must be all zero.
 * AB_NO_MEMORY. Free with ab_observation_fini, also after an error. */
AB_MUST_CHECK ab_status ab_observation_init(ab_observation *observation, const ab_cell_memory *memory,
                                            const ab_optimizer *optimizer);
void ab_observation_fini(ab_observation *observation);

/* Sets what probed steps show from now on; NULL: gradients. Renumbers the observed tensors: their ids are
 * indices into `observed`. */
void ab_observation_watch(ab_observation *observation, const ab_watch *watch);

/* Whether the current step is shown to the watch. */
static inline bool ab_observation_is_observed(const ab_observation *observation) {
    return observation->observer || observation->is_replay;
}

/* Calls the observers of a step: the observer with values of tensors, the watch and the follower with
 * completed ops and with casts and sums of tensors. If the host cannot read a tensor, a copy is passed,
 * unless the watch reads tensors anywhere. */

/* Shows a stored tensor under `id` if the step is probed and id >= 0. Errors: AB_NO_MEMORY or device
 * errors. */
AB_MUST_CHECK ab_status ab_observe_tensor(const ab_observation *observation, const ab_tensor *tensor, int id);

/* Shows tensor `number` (AB_NONE: no-op) under its own id if it is fp32; half tensors were shown when they
 * were cast. */
AB_MUST_CHECK ab_status ab_observe_fp32(const ab_observation *observation, int number);

/* Reports that the op of node `node` has run on `io` with `exec`, in its backward or forward pass. */
AB_MUST_CHECK ab_status ab_observe_op(ab_observation *observation, int node, const ab_op_io *io,
                                      const ab_exec *exec, bool backward);

/* Reports that tensor `from` was cast to or added to tensor `to`, for op `net_op` of the network (AB_NONE:
 * none). Tensors that the host cannot read are reported only if the watch reads tensors anywhere; else the op
 * that reads one shows its values. */
void ab_observe_cast_or_sum(const ab_observation *observation, ab_move_kind kind, int net_op, bool backward,
                            int to, int from);

AB_END_DECLS

#endif
