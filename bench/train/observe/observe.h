/* Showing a step to those who observe it: values of tensors to the observer, ops that have run and tensors
 * that were cast or summed to the watch and the follower. Where the host cannot read a tensor, a copy is
 * shown. */
#ifndef AB_BENCH_TRAIN_OBSERVE_OBSERVE_H
#define AB_BENCH_TRAIN_OBSERVE_OBSERVE_H

#include "bench/train/observe/observation.h"

AB_BEGIN_DECLS

/* Shows a stored tensor under a number, if the step is probed and id >= 0. AB_NO_MEMORY, or what the device
 * says. */
AB_MUST_CHECK ab_status ab_observe_tensor(const ab_observation *observation, const ab_tensor *tensor, int id);

/* Shows tensor `number` (AB_NONE: nothing) under its own id if it is fp32; half ones were shown when they
 * were cast. */
AB_MUST_CHECK ab_status ab_observe_fp32(const ab_observation *observation, int number);

/* The op of node `node` has run on `io`, in its backward pass or its forward pass, as `exec` says. */
AB_MUST_CHECK ab_status ab_observe_ran(ab_observation *observation, int node, const ab_op_io *io,
                                       const ab_exec *exec, bool backward);

/* Tensor `from` was cast to or added to tensor `to`, for op `net_op` of the network (AB_NONE: none). Tensors
 * that the host cannot read are not told of: an op that reads one shows what is in it. */
void ab_observe_moved(const ab_observation *observation, ab_move_kind kind, int net_op, bool backward, int to,
                      int from);

AB_END_DECLS

#endif
