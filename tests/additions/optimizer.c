/* An optimizer as a newcomer would add it: sign descent. */
#include "bench/train/optim/optimizer.h"

#include <math.h>

static void update(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                   float *const *state, int64_t n) {
    (void)taken, (void)state;
    for (int64_t i = 0; i < n; i++)
        if (grad[i] != 0) weight[i] -= (float)config->lr * copysignf(1.0f, grad[i]);
}

extern const ab_optimizer ab_optimizer_added_optimizer;
const ab_optimizer ab_optimizer_added_optimizer = {.name = "added_optimizer",
                                                   .text = "sign descent",
                                                   .second_moment = -1,
                                                   .defaults = {.lr = 0.001},
                                                   .update = update};
