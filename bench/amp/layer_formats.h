/* Per-layer format overrides as users write them: "conv1=fp32,block.*.attn=half" (like MindSpore's
 * Cell.to_float), or for one role of a layer: "fc1:wgrad=fp32". Layer names contain no colon; many contain
 * dots. */
#ifndef AB_BENCH_AMP_LAYER_FORMATS_H
#define AB_BENCH_AMP_LAYER_FORMATS_H

#include "bench/nets/net.h"
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

AB_END_DECLS

#endif
