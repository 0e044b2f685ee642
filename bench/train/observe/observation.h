/* Observers of a cell: the watch of probed steps, the follower of all steps, and the ids under which tensors
 * are shown (observe.h). Values are only read. */
#ifndef AB_BENCH_TRAIN_OBSERVE_OBSERVATION_H
#define AB_BENCH_TRAIN_OBSERVE_OBSERVATION_H

#include "bench/train/memory/memory.h"
#include "bench/train/observe/observed.h"
#include "bench/train/optim/optimizer.h"
#include "kernels/backend/host_mirror.h"

AB_BEGIN_DECLS

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

AB_END_DECLS

#endif
