/* The parameters of a plan: their specification in the network, and which are trained. Counts and names; no
 * values. */
#ifndef AB_BENCH_TRAIN_MEMORY_PARAMS_H
#define AB_BENCH_TRAIN_MEMORY_PARAMS_H

#include "bench/amp/plan/plan.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

/* The network's specification of a parameter. */
static inline const ab_param_spec *ab_params_spec(const ab_plan *plan, const ab_plan_param *param) {
    return &plan->net->op[param->net_op].param[param->index];
}

/* Writes its name, such as "conv1.weight", to name[AB_PLAN_NAME] and returns `name`. */
const char *ab_params_name(const ab_plan *plan, const ab_plan_param *param, char *name);

/* Number of the tensor that the optimizer updates: the fp32 master if there is one. */
static inline int ab_params_weight(const ab_plan_param *param) {
    return param->master != AB_NONE ? param->master : param->stored;
}

/* Elements of the largest parameter; at least 1. */
int64_t ab_params_largest(const ab_plan *plan);

/* Allocates a buffer for the elements of the largest parameter; the caller frees it. NULL: out of memory. */
float *ab_params_room(const ab_plan *plan);

/* The parameters that the optimizer updates, in the plan's order. */
typedef struct ab_trained_params {
    int count;
    ab_probe_param *about; /* [count]; owned */
    int *place;            /* [plan->params]: index among the trained parameters, or -1; owned */
} ab_trained_params;

/* Lists the trained parameters. `states`: the optimizer has state. Errors: AB_NO_MEMORY.
 * ab_trained_params_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_trained_params_init(ab_trained_params *trained, const ab_plan *plan, bool states);
void ab_trained_params_fini(ab_trained_params *trained);

AB_END_DECLS

#endif
