/* Constants of the Adam direction, and the terms of its step. */
#include "bench/train/optim/adam_direction.h"

ab_adam_constants ab_adam_constants_of(const ab_optimizer_config *config, bool correct, bool decoupled) {
    const float decay = (float)config->weight_decay;
    return (ab_adam_constants){.divisor = 1,
                               .keep1 = (float)config->beta1,
                               .fresh1 = (float)(1.0 - config->beta1),
                               .keep2 = (float)config->beta2,
                               .fresh2 = (float)(1.0 - config->beta2),
                               .correction1 = correct ? (float)config->correction1 : 1.0f,
                               .correction2 = correct ? (float)config->correction2 : 1.0f,
                               .eps = (float)config->eps,
                               .inside = decoupled ? 0.0f : decay,
                               .beside = decoupled ? decay : 0.0f};
}

unsigned ab_adam_terms(const ab_adam_constants *c, double rate, const ab_optimizer_values *before,
                       double *const *term, int64_t n) {
    const double eps = (double)c->eps, step = rate / (double)c->correction1, fresh = (double)c->fresh1;
    for (int64_t i = 0; i < n; i++) {
        const double weight = (double)before->weight[i], m = (double)before->state[0][i];
        const double own = (double)before->grad[i] / (double)c->divisor, decayed = (double)c->inside * weight;
        const double g = own + decayed;
        const double v = (double)c->keep2 * (double)before->state[1][i] + (double)c->fresh2 * g * g;
        const double root = sqrt(v / (double)c->correction2), per = root + eps > 0 ? step / (root + eps) : 0;
        const double moment = (double)c->keep1 * m + fresh * g;
        term[AB_TERM_GRADIENT][i] = -per * fresh * own;
        term[AB_TERM_WEIGHT_DECAY][i] = -per * fresh * decayed - rate * (double)c->beside * weight;
        term[AB_TERM_MOMENTUM][i] = -per * (double)c->keep1 * m;
        term[AB_TERM_EPS][i] = root > 0 ? moment * (step / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_MOMENTUM | 1u << AB_TERM_EPS |
           (unsigned)(c->inside != 0 || c->beside != 0) << AB_TERM_WEIGHT_DECAY;
}
