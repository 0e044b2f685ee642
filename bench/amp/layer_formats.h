/* Per-layer format overrides as users write them: "conv1=fp32,block.*.attn=half" (like MindSpore's
 * Cell.to_float), or for one role of a layer: "fc1:wgrad=fp32". Layer names contain no colon; many contain
 * dots. */
#ifndef AB_BENCH_AMP_LAYER_FORMATS_H
#define AB_BENCH_AMP_LAYER_FORMATS_H

#include "bench/nets/net.h"
#include "kernels/core/compiler.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* A result of an op, or its weights. Ops read operands in their stored formats, compute in fp32 and round the
 * result once; so the format of a role is the storage format of its result. */
typedef enum ab_layer_role {
    AB_LAYER_FORWARD, /* its output */
    AB_LAYER_DGRAD,   /* the gradients of its inputs */
    AB_LAYER_WGRAD,   /* the gradients of its weights */
    AB_LAYER_WEIGHTS, /* its weights, as stored and read */
    AB_LAYER_ROLES
} ab_layer_role;

/* Overrides of one layer; NULL: the level decides. `whole`: all roles, and the inputs, which are cast to
 * it. */
typedef struct ab_layer_format {
    const ab_format *whole, *role[AB_LAYER_ROLES];
} ab_layer_format;

const char *ab_layer_role_name(ab_layer_role role); /* "forward", ... */

/* Parses `text` and writes the overrides of each op to own[net->ops]. A pattern is an op's name with * and ?,
 * or a prefix of it before a dot (all ops of a block), followed by :ROLE for one role; later items override
 * earlier ones. Formats: fp32, half, or the name of `half`. AB_USAGE: a pattern that matches no layer (names
 * the nearest), an unknown role, one that no matching layer has, another format, or a missing format. */
AB_MUST_CHECK ab_status ab_layer_formats(const char *text, const ab_net *net, const ab_format *half,
                                         ab_layer_format *own);

/* Op cast lists, for levels that cast functions and not models: apex's O1 lists (the class column of
 * kernels/ops/ops.def), torch autocast's for CUDA and for CPU, and MindSpore's blacklist of cells. Op names
 * are those of ops.def. An op that is not listed takes the format of its inputs, as unlisted functions do in
 * torch's dispatcher. */

typedef enum ab_op_list {
    AB_LIST_apex, /* O1 */
    AB_LIST_torch_cuda,
    AB_LIST_torch_cpu,
    AB_LIST_mindspore, /* lists only the cells that keep fp32 parameters under a half model */
    AB_LIST_none
} ab_op_list;

typedef enum ab_op_rule {
    AB_RULE_low,      /* floating inputs and weights are cast to the half format */
    AB_RULE_low_in,   /* as low, but the result has the format of the input before its cast: torch's gru on
                         the CPU, whose state begins in that format */
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
