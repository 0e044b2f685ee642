/* fusedsgd: apex's FusedSGD (csrc/multi_tensor_sgd_kernel.cu): d = g + wd w; b = m b + (1 - dampening) d, and
 * b = d at the first step; w -= lr b, or lr (d + m b) with nesterov. With wd_after_momentum d = g and wd w is
 * added to the step instead. A momentum of 0 takes the step d without the buffer, dampening included.
 *
 * materialize_master_grads=False: gradients of several batches are summed in the model's half format, because
 * there are no fp32 gradients to sum them in; a step of one batch has the same bits either way. */
#include "bench/train/optim/optimizer.h"

enum { NESTEROV, WD_AFTER_MOMENTUM, MATERIALIZE_MASTER_GRADS };

typedef struct constants {
    float lr, momentum, fresh, inside, beside;
    bool nesterov;
} constants;

static constants constants_of(const ab_optimizer_config *config, int64_t taken) {
    const bool after = config->value[WD_AFTER_MOMENTUM] != 0;
    const float decay = (float)config->weight_decay;
    return (constants){.lr = (float)config->lr,
                       .momentum = (float)config->momentum,
                       .fresh = taken == 1 ? 1.0f : (float)(1.0 - config->dampening),
                       .inside = after ? 0.0f : decay,
                       .beside = after ? decay : 0.0f,
                       .nesterov = config->value[NESTEROV] != 0};
}

static void fusedsgd(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                     float *const *state, int64_t n) {
    const constants c = constants_of(config, taken);
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + c.inside * weight[i];
        if (c.momentum != 0) {
            state[0][i] = c.momentum * state[0][i] + c.fresh * d;
            d = c.nesterov ? d + c.momentum * state[0][i] : state[0][i];
        }
        weight[i] -= c.lr * (d + c.beside * weight[i]);
    }
}

/* The step is lr (part d + keep b + beside w) with the old buffer b. */
static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    const constants c = constants_of(config, taken);
    const double lr = (double)c.lr, m = (double)c.momentum, fresh = (double)c.fresh;
    const double part = m == 0 ? 1 : c.nesterov ? 1 + m * fresh : fresh, keep = c.nesterov ? m * m : m;
    for (int64_t i = 0; i < n; i++) {
        term[AB_TERM_GRADIENT][i] = -lr * part * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] =
            -lr * (part * (double)c.inside + (double)c.beside) * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = -lr * keep * (double)before->state[0][i];
    }
    return 1u << AB_TERM_GRADIENT | (unsigned)(config->weight_decay != 0) << AB_TERM_WEIGHT_DECAY |
           (unsigned)(m != 0) << AB_TERM_MOMENTUM;
}

extern const ab_optimizer ab_optimizer_fusedsgd;
const ab_optimizer ab_optimizer_fusedsgd = {
    .name = "fusedsgd",
    .text = "apex FusedSGD",
    .states = 1,
    .state = {"momentum_buffer"},
    .second_moment = -1,
    .other_decay_key = 1 + WD_AFTER_MOMENTUM,
    .fp32_grads_key = 1 + MATERIALIZE_MASTER_GRADS,
    .knobs = AB_KNOB_MOMENTUM | AB_KNOB_DAMPENING,
    .keys = 3,
    .key = {{.name = "nesterov"}, {.name = "wd_after_momentum"}, {.name = "materialize_master_grads"}},
    .defaults = {.lr = 0.01, .value = {0, 0, 1}},
    .update = fusedsgd,
    .terms = terms};
