/* Op cast lists, for levels that cast functions and not models: apex's O1 lists (the class column of
 * kernels/ops/ops.def), torch autocast's for CUDA and for CPU, and MindSpore's blacklist of cells. Op names
 * are those of ops.def. An op that is not listed takes the format of its inputs, as unlisted functions do in
 * torch's dispatcher. */
#ifndef AB_BENCH_AMP_OP_RULES_H
#define AB_BENCH_AMP_OP_RULES_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

typedef enum ab_op_list {
    AB_LIST_apex, /* O1 */
    AB_LIST_torch_cuda,
    AB_LIST_torch_cpu,
    AB_LIST_mindspore, /* lists only the cells that keep fp32 parameters under a half model */
    AB_LIST_none
} ab_op_list;

typedef enum ab_op_rule {
    AB_RULE_low,      /* floating inputs and weights are cast to the half format */
    AB_RULE_fp32,     /* floating inputs are cast to fp32 */
    AB_RULE_fp32_out, /* torch requests an fp32 result (dtype=float32), which casts the input; so here
                       */
    AB_RULE_promote,  /* mixed inputs are cast to the widest */
    AB_RULE_follow,   /* not listed: the format of the inputs, the widest if they are mixed */
    AB_RULE_banned,   /* an error */
    AB_RULE_keep      /* parameters stay fp32 under a half model if it keeps batch norms */
} ab_op_rule;

/* The rule of a list for an op. `op_row`: the op's row in kernels/ops/ops.def. */
ab_op_rule ab_op_rule_of(ab_op_list list, int op_row);

AB_END_DECLS

#endif
