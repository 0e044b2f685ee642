/* The parameters of a plan: what the network says of them, and which are trained. Counts and names; no
 * values. */
#ifndef AB_BENCH_TRAIN_MEMORY_PARAMS_H
#define AB_BENCH_TRAIN_MEMORY_PARAMS_H

#include "bench/amp/plan/plan.h"
#include "probes/probe.h"

AB_BEGIN_DECLS

/* What the network says of a parameter. */
static inline const ab_param_spec *ab_params_spec(const ab_plan *plan, const ab_plan_param *param) {
    return &plan->net->op[param->net_op].param[param->index];
}

/* Its name, such as "conv1.weight", written to name[AB_PLAN_NAME], which is returned. */
const char *ab_params_name(const ab_plan *plan, const ab_plan_param *param, char *name);

/* The number of the tensor that the optimizer works on: the fp32 master where there is one. */
static inline int ab_params_weight(const ab_plan_param *param) {
    return param->master != AB_NONE ? param->master : param->stored;
}

/* Elements of the largest parameter; at least 1. */
int64_t ab_params_largest(const ab_plan *plan);

/* Room for the elements of the largest parameter, which the caller frees; NULL: out of memory. */
float *ab_params_room(const ab_plan *plan);

/* The parameters that the optimizer updates, in the plan's order. */
typedef struct ab_trained_params {
    int count;
    ab_probe_param *about; /* [count]; owned */
    int *place;            /* [plan->params]: place among the trained ones, or -1; owned */
} ab_trained_params;

/* Lists them. `states`: the optimizer keeps state. AB_NO_MEMORY. ab_trained_params_fini frees it, also after
 * an error. */
AB_MUST_CHECK ab_status ab_trained_params_init(ab_trained_params *trained, const ab_plan *plan, bool states);
void ab_trained_params_fini(ab_trained_params *trained);

AB_END_DECLS

#endif
