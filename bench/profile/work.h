/* What a pass of a plan's node computes, reads and writes; no time is known here. */
#ifndef AB_BENCH_PROFILE_WORK_H
#define AB_BENCH_PROFILE_WORK_H

#include "bench/amp/plan/plan.h"

AB_BEGIN_DECLS

/* Called for every tensor that a pass reads or writes once; for one that it updates twice, read first. */
typedef void (*ab_work_operand)(void *context, int tensor, bool written);

/* Of a pass of one node. past: casts beside it do not run, it reads and writes what lies behind them. */
void ab_work_forward(const ab_plan *plan, const ab_plan_node *node, bool past, ab_work_operand visit,
                     void *context);
void ab_work_backward(const ab_plan *plan, const ab_plan_node *node, bool past, ab_work_operand visit,
                      void *context);

/* Of casting and adding up gradients after the node's backward pass. left [parameters]: half gradients that
 * the update reads, which nobody casts. */
void ab_work_sums(const ab_plan *plan, const ab_plan_node *node, const bool *left, ab_work_operand visit,
                  void *context);

/* Of a step's weight casts, and of its optimizer. */
void ab_work_weight_casts(const ab_plan *plan, ab_work_operand visit, void *context);
void ab_work_update(const ab_plan *plan, const bool *left, ab_work_operand visit, void *context);

/* Bytes of a tensor; 0 for AB_NONE. */
int64_t ab_work_bytes(const ab_plan *plan, int tensor);

/* Bytes that a pass reads a second time: a batch norm that trains needs sums over its whole input, backward
 * over the gradient too, before its first result. */
double ab_work_again_bytes(const ab_plan *plan, const ab_plan_node *node, bool backward, bool past);

/* Floating-point operations; of them those of products of fp32 whatever the tensors' formats. */
double ab_work_flops(const ab_plan *plan, const ab_plan_node *node, bool backward);
double ab_work_wide_flops(const ab_plan *plan, const ab_plan_node *node, bool backward);

/* Adds the values of elementary functions that a pass computes; returns how many it looks up instead. */
double ab_work_elementary(const ab_plan *plan, const ab_plan_node *node, bool backward,
                          double count[AB_ELEMENTARY_COUNT]);

AB_END_DECLS

#endif
