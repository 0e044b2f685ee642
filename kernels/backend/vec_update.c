/* The loops of vec_update.h. One function a formula, so that nothing is decided per element. */
#include "kernels/backend/vec_update.h"

#include "kernels/vec/isa.h"

#define PASTE_TOKENS(a, b) a##b
#define PASTE(a, b) PASTE_TOKENS(a, b)

/* `kind` and `states` are constants of every caller. The arrays do not overlap. */
static AB_FORCE_INLINE void update_all(const int kind, const int states, const float *c,
                                       const ab_update_span *span) {
    float *restrict weight = span->weight, *restrict first = span->state[0],
                    *restrict second = span->state[1];
    const float *restrict grad = span->grad;
    const float factor = span->factor;
    const int64_t n = span->n;
    float constant[AB_UPDATE_CONSTANTS];
    memcpy(constant, c, sizeof constant);
    for (int64_t i = 0; i < n; i++) {
        float state[2] = {states > 0 ? first[i] : 0.0f, states > 1 ? second[i] : 0.0f}, w = weight[i];
        ab_f_update(kind, constant, grad[i] * factor, &w, state);
        weight[i] = w;
        if (states > 0) first[i] = state[0];
        if (states > 1) second[i] = state[1];
    }
}

#define FORMULA(name, kind, states)                                                                          \
    static void name(const float *c, const ab_update_span *span) { update_all(kind, states, c, span); }
FORMULA(sgd, AB_UPDATE_SGD, 0)
FORMULA(momentum, AB_UPDATE_MOMENTUM, 1)
FORMULA(nesterov, AB_UPDATE_NESTEROV, 1)
FORMULA(adam, AB_UPDATE_ADAM, 2)
FORMULA(adamw, AB_UPDATE_ADAMW, 2)
FORMULA(rmsprop, AB_UPDATE_RMSPROP, 1)
FORMULA(rmsprop_momentum, AB_UPDATE_RMSPROP_MOMENTUM, 2)
FORMULA(rmsprop_centered, AB_UPDATE_RMSPROP_CENTERED, 2)
FORMULA(adagrad, AB_UPDATE_ADAGRAD, 1)
#undef FORMULA

extern const ab_vec_update PASTE(ab_vec_update_, AB_ISA_SUFFIX);
const ab_vec_update PASTE(ab_vec_update_,
                          AB_ISA_SUFFIX) = {.run = {[AB_UPDATE_SGD] = sgd,
                                                    [AB_UPDATE_MOMENTUM] = momentum,
                                                    [AB_UPDATE_NESTEROV] = nesterov,
                                                    [AB_UPDATE_ADAM] = adam,
                                                    [AB_UPDATE_ADAMW] = adamw,
                                                    [AB_UPDATE_RMSPROP] = rmsprop,
                                                    [AB_UPDATE_RMSPROP_MOMENTUM] = rmsprop_momentum,
                                                    [AB_UPDATE_RMSPROP_CENTERED] = rmsprop_centered,
                                                    [AB_UPDATE_ADAGRAD] = adagrad}};
