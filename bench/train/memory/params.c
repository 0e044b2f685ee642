/* Names, sizes and the list of trained parameters. */
#include "bench/train/memory/params.h"

#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>

const char *ab_params_name(const ab_plan *plan, const ab_plan_param *param, char *name) {
    ab_text_exact(name, AB_PLAN_NAME, "%s.%s", plan->net->op[param->net_op].name,
                  ab_params_spec(plan, param)->name);
    return name;
}

int64_t ab_params_largest(const ab_plan *plan) {
    int64_t largest = 1;
    for (int p = 0; p < plan->params; p++) {
        const int64_t n = ab_shape_count(&ab_params_spec(plan, &plan->param[p])->shape);
        largest = n > largest ? n : largest;
    }
    return largest;
}

float *ab_params_room(const ab_plan *plan) { return calloc((size_t)ab_params_largest(plan), sizeof(float)); }

static ab_probe_param describe(const ab_plan *plan, const ab_plan_param *param, bool states) {
    const ab_plan_tensor *weight = &plan->tensor[ab_params_weight(param)];
    return (ab_probe_param){.name = plan->tensor[param->stored].name,
                            .layer = plan->net->op[param->net_op].name,
                            .count = ab_shape_count(&weight->shape),
                            .rows = weight->shape.ndim > 1 ? weight->shape.dim[0] : 0,
                            .format = weight->format,
                            .state_format = states ? plan->tensor[param->state[0]].format : weight->format};
}

ab_status ab_trained_params_init(ab_trained_params *trained, const ab_plan *plan, bool states) {
    const size_t room = (size_t)plan->params + 1;
    *trained = (ab_trained_params){0, calloc(room, sizeof *trained->about), calloc(room, sizeof(int))};
    if (!trained->about || !trained->place) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0; p < plan->params; p++) {
        trained->place[p] = -1;
        if (plan->param[p].grad == AB_NONE) continue;
        trained->about[trained->count] = describe(plan, &plan->param[p], states);
        trained->place[p] = trained->count++;
    }
    return AB_OK;
}

void ab_trained_params_fini(ab_trained_params *trained) {
    free(trained->about);
    free(trained->place);
    *trained = (ab_trained_params){.about = NULL};
}
