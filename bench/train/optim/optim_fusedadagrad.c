/* fusedadagrad: apex's FusedAdagrad (csrc/multi_tensor_adagrad.cu): g += wd w; s += g g; w -= lr g / (sqrt(s)
 * + eps). With adagrad_w_mode the decay is beside the direction: w -= lr (g / (sqrt(s) + eps) + wd w). */
#include "bench/train/optim/optimizer.h"

#include <math.h>

enum { ADAGRAD_W_MODE };

typedef struct constants {
    float lr, eps, inside, beside;
} constants;

static constants constants_of(const ab_optimizer_config *config) {
    const bool decoupled = config->value[ADAGRAD_W_MODE] != 0;
    const float decay = (float)config->weight_decay;
    return (constants){(float)config->lr, (float)config->eps, decoupled ? 0.0f : decay,
                       decoupled ? decay : 0.0f};
}

static void fusedadagrad(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                         float *const *state, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    for (int64_t i = 0; i < n; i++) {
        const float g = grad[i] + c.inside * weight[i];
        state[0][i] += g * g;
        weight[i] -= c.lr * (g / (sqrtf(state[0][i]) + c.eps) + c.beside * weight[i]);
    }
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const double lr = (double)c.lr, eps = (double)c.eps;
    for (int64_t i = 0; i < n; i++) {
        const double decayed = (double)c.inside * (double)before->weight[i];
        const double g = (double)before->grad[i] + decayed, root = sqrt((double)before->state[0][i] + g * g);
        const double per = root + eps > 0 ? lr / (root + eps) : 0;
        term[AB_TERM_GRADIENT][i] = -per * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -per * decayed - lr * (double)c.beside * (double)before->weight[i];
        term[AB_TERM_EPS][i] = root > 0 ? g * (lr / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_EPS |
           (unsigned)(config->weight_decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_fusedadagrad;
const ab_optimizer ab_optimizer_fusedadagrad = {.name = "fusedadagrad",
                                                .text = "apex FusedAdagrad",
                                                .states = 1,
                                                .state = {"sum"},
                                                .second_moment = -1,
                                                .other_decay_key = 1 + ADAGRAD_W_MODE,
                                                .knobs = AB_KNOB_EPS,
                                                .keys = 1,
                                                .key = {{.name = "adagrad_w_mode"}},
                                                .defaults = {.lr = 0.01, .eps = 1e-10},
                                                .update = fusedadagrad,
                                                .terms = terms};
