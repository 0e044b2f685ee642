/* adam: torch.optim.Adam (Kingma and Ba, "Adam: a method for stochastic optimization", algorithm 1, with torch's grouping):
 * m += (1 - b1)(g - m); v = b2 v + (1 - b2) g g; w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps).
 * Weight decay is L2: g + wd w. */
#include "bench/train/optimizer.h"

#include <math.h>

static void adam(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                 float *const *state, int64_t n) {
    float *m = state[0], *v = state[1];
    const double correction1 = 1.0 - pow(config->beta1, (double)taken);
    const double correction2 = 1.0 - pow(config->beta2, (double)taken);
    const float step_size = (float)(config->lr / correction1), root2 = (float)sqrt(correction2);
    const float fresh1 = (float)(1.0 - config->beta1), keep2 = (float)config->beta2,
                fresh2 = (float)(1.0 - config->beta2);
    const float eps = (float)config->eps, decay = (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + decay * weight[i];
        m[i] += fresh1 * (g - m[i]);
        v[i] = keep2 * v[i] + fresh2 * g * g;
        weight[i] -= step_size * (m[i] / (sqrtf(v[i]) / root2 + eps));
    }
}

extern const ab_optimizer ab_optimizer_adam;
const ab_optimizer ab_optimizer_adam = {.name = "adam",
                                        .text = "torch.optim.Adam",
                                        .states = 2,
                                        .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                                        .update = adam};
