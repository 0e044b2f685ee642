/* Layers with a format of their own, as users write them: "conv1=fp32,block.*.attn=half" (MindSpore's
 * Cell.to_float), and single things that a layer makes or keeps: "fc1:wgrad=fp32". No name of a layer has a
 * colon, but many have dots. */
#ifndef AB_BENCH_AMP_LAYER_FORMATS_H
#define AB_BENCH_AMP_LAYER_FORMATS_H

#include "bench/nets/net.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* What one pass of an op makes, and what it keeps. Ops compute in fp32 from operands as these are stored and
 * round once to the format of the result; so the format of a role is that of its result, in memory and for
 * whoever reads it. */
typedef enum ab_layer_role {
    AB_LAYER_FORWARD, /* its output */
    AB_LAYER_DGRAD,   /* the gradients of its inputs */
    AB_LAYER_WGRAD,   /* the gradients of its weights */
    AB_LAYER_WEIGHTS, /* its weights, as they are kept and read */
    AB_LAYER_ROLES
} ab_layer_role;

/* NULL: as the level says. `whole`: of all roles, and of the inputs, which are cast to it. */
typedef struct ab_layer_format {
    const ab_format *whole, *role[AB_LAYER_ROLES];
} ab_layer_format;

const char *ab_layer_role_name(ab_layer_role role); /* "forward", ... */

/* own[net->ops] gets each op's own formats. A pattern is an op's name with * and ?, or the part of it before
 * a dot (a block and all that is in it), with :ROLE behind it for one role; later items override earlier
 * ones. Formats: fp32, half, or the name of `half`. AB_USAGE: a pattern that matches no layer (names the
 * nearest), an unknown role, one that no matching layer has, another format, or no format at all. */
AB_MUST_CHECK ab_status ab_layer_formats(const char *text, const ab_net *net, const ab_format *half,
                                         ab_layer_format *own);

AB_END_DECLS

#endif
