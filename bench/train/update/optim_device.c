/* Constants are computed exactly as in optim_*.c; a test compares the updates bit for bit. */
#include "bench/train/update/optim_device.h"

#include <math.h>
#include <string.h>

ab_update_kind ab_optimizer_device_kind(const ab_optimizer *optimizer) {
    static const struct {
        const char *name;
        ab_update_kind kind;
    } formulas[] = {{"sgd", AB_UPDATE_SGD},
                    {"momentum", AB_UPDATE_MOMENTUM},
                    {"nesterov", AB_UPDATE_NESTEROV},
                    {"adam", AB_UPDATE_ADAM},
                    {"adamw", AB_UPDATE_ADAMW},
                    {"rmsprop", AB_UPDATE_RMSPROP},
                    {"rmsprop_momentum", AB_UPDATE_RMSPROP_MOMENTUM},
                    {"rmsprop_centered", AB_UPDATE_RMSPROP_CENTERED},
                    {"adagrad", AB_UPDATE_ADAGRAD},
                    {"lamb", AB_UPDATE_LAMB},
                    {"lars", AB_UPDATE_LARS},
                    {"larc", AB_UPDATE_LARC}};
    for (size_t i = 0; i < AB_COUNT_OF(formulas); i++)
        if (strcmp(optimizer->name, formulas[i].name) == 0) return formulas[i].kind;
    return AB_UPDATE_NONE;
}

static ab_update_row adam_row(ab_update_kind kind, const ab_optimizer_config *config, int64_t taken) {
    const double correction1 = ab_optimizer_correction(config->beta1, taken);
    const double correction2 = ab_optimizer_correction(config->beta2, taken);
    const double decay =
        kind == AB_UPDATE_ADAMW ? 1.0 - config->lr * config->weight_decay : config->weight_decay;
    return (ab_update_row){.value = {(float)(config->lr / correction1), (float)decay,
                                     (float)(1.0 - config->beta1), (float)config->beta2,
                                     (float)(1.0 - config->beta2), (float)sqrt(correction2),
                                     (float)config->eps}};
}

static ab_update_row rmsprop_row(const ab_optimizer_config *config) {
    return (ab_update_row){.value = {(float)config->lr, (float)config->weight_decay, (float)config->alpha,
                                     (float)(1.0 - config->alpha), (float)config->eps,
                                     (float)config->momentum}};
}

/* The first constant depends on norms. */
static ab_update_row lamb_row(const ab_optimizer_config *config, int64_t taken) {
    return (ab_update_row){.value = {0, (float)config->beta1, (float)(1.0 - config->beta1),
                                     (float)config->beta2, (float)(1.0 - config->beta2),
                                     (float)(ab_optimizer_correction(config->beta1, taken)),
                                     (float)(ab_optimizer_correction(config->beta2, taken)),
                                     (float)config->eps, (float)config->weight_decay},
                           .lr = config->lr,
                           .decay = config->weight_decay,
                           .eps = config->eps};
}

static ab_update_row lars_row(const ab_optimizer_config *config) {
    return (ab_update_row){.value = {(float)config->lr, (float)config->momentum},
                           .lr = config->lr,
                           .decay = config->weight_decay,
                           .eps = config->eps,
                           .coefficient = config->trust_coefficient};
}

static ab_update_row adagrad_row(const ab_optimizer_config *config, int64_t taken) {
    const double rate = config->lr / (1.0 + (double)(taken - 1) * config->lr_decay);
    return (ab_update_row){.value = {(float)rate, (float)config->weight_decay, (float)config->eps}};
}

ab_update_row ab_optimizer_device_row(ab_update_kind kind, const ab_optimizer_config *config, int64_t taken) {
    if (kind == AB_UPDATE_ADAM || kind == AB_UPDATE_ADAMW) return adam_row(kind, config, taken);
    if (kind >= AB_UPDATE_RMSPROP && kind <= AB_UPDATE_RMSPROP_CENTERED) return rmsprop_row(config);
    if (kind == AB_UPDATE_ADAGRAD) return adagrad_row(config, taken);
    if (kind == AB_UPDATE_LAMB) return lamb_row(config, taken);
    if (kind == AB_UPDATE_LARS || kind == AB_UPDATE_LARC) return lars_row(config);
    const float fresh = taken == 1 ? 1.0f : (float)(1.0 - config->dampening);
    return (ab_update_row){
        .value = {(float)config->lr, (float)config->weight_decay, (float)config->momentum, fresh}};
}
