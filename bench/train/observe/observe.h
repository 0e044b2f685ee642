/* Calls the observers of a step: the observer with values of tensors, the watch and the follower with
 * completed ops and with casts and sums of tensors. If the host cannot read a tensor, a copy is passed. */
#ifndef AB_BENCH_TRAIN_OBSERVE_OBSERVE_H
#define AB_BENCH_TRAIN_OBSERVE_OBSERVE_H

#include "bench/train/observe/observation.h"

AB_BEGIN_DECLS

/* Shows a stored tensor under `id` if the step is probed and id >= 0. Errors: AB_NO_MEMORY or device
 * errors. */
AB_MUST_CHECK ab_status ab_observe_tensor(const ab_observation *observation, const ab_tensor *tensor, int id);

/* Shows tensor `number` (AB_NONE: no-op) under its own id if it is fp32; half tensors were shown when they
 * were cast. */
AB_MUST_CHECK ab_status ab_observe_fp32(const ab_observation *observation, int number);

/* Reports that the op of node `node` has run on `io` with `exec`, in its backward or forward pass. */
AB_MUST_CHECK ab_status ab_observe_ran(ab_observation *observation, int node, const ab_op_io *io,
                                       const ab_exec *exec, bool backward);

/* Reports that tensor `from` was cast to or added to tensor `to`, for op `net_op` of the network (AB_NONE:
 * none). Tensors that the host cannot read are not reported: the op that reads one shows its values. */
void ab_observe_moved(const ab_observation *observation, ab_move_kind kind, int net_op, bool backward, int to,
                      int from);

AB_END_DECLS

#endif
