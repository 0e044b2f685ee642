/* Parameter groups: parameters with their own learning rate or weight decay; parsed from text and applied to
 * a network. */
#ifndef AB_BENCH_TRAIN_OPTIM_GROUPS_H
#define AB_BENCH_TRAIN_OPTIM_GROUPS_H

#include "bench/nets/net.h"
#include "bench/train/optim/optimizer.h"

AB_BEGIN_DECLS

enum { AB_MAX_GROUPS = 16, AB_GROUP_PATTERN = 96 };

/* `pattern` is a shell pattern of parameter names ("fc*.weight"); "bias": every bias; "norm": all parameters
 * of normalisation ops. */
typedef struct ab_param_group {
    char pattern[AB_GROUP_PATTERN];
    double lr_factor;
    double weight_decay; /* < 0: the optimizer's */
} ab_param_group;

typedef struct ab_param_groups {
    int count;
    ab_param_group group[AB_MAX_GROUPS];
} ab_param_groups;

/* Appends one group without weight decay per pattern of a comma-separated list. */
AB_MUST_CHECK ab_status ab_param_groups_no_decay(const char *text, ab_param_groups *groups);

/* Appends "PATTERN:lr_factor=0.1,weight_decay=0;PATTERN:...". */
AB_MUST_CHECK ab_status ab_param_groups_parse(const char *text, ab_param_groups *groups);

/* AB_USAGE when a name pattern matches no trained parameter; names the nearest one. */
AB_MUST_CHECK ab_status ab_param_groups_check(const ab_param_groups *groups, const ab_net *net);

/* Applies the groups that match parameter `param` of `op` to *config; a later group overrides an earlier
 * one. */
void ab_param_groups_apply(const ab_param_groups *groups, const ab_net_op *op, const ab_param_spec *param,
                           ab_optimizer_config *config);

AB_END_DECLS

#endif
