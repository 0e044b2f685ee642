/* The constants are computed as optim_sgd.c, optim_adam.c and optim_adamw.c compute theirs; a test compares the updates bit for
 * bit. */
#include "bench/train/optim_device.h"

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
                    {"adamw", AB_UPDATE_ADAMW}};
    for (size_t i = 0; i < AB_COUNT_OF(formulas); i++)
        if (strcmp(optimizer->name, formulas[i].name) == 0) return formulas[i].kind;
    return AB_UPDATE_NONE;
}

static ab_update_row adam_row(ab_update_kind kind, const ab_optimizer_config *config, int64_t taken) {
    const double correction1 = 1.0 - pow(config->beta1, (double)taken);
    const double correction2 = 1.0 - pow(config->beta2, (double)taken);
    const double decay =
        kind == AB_UPDATE_ADAMW ? 1.0 - config->lr * config->weight_decay : config->weight_decay;
    return (ab_update_row){{(float)(config->lr / correction1), (float)decay, (float)(1.0 - config->beta1),
                            (float)config->beta2, (float)(1.0 - config->beta2), (float)sqrt(correction2),
                            (float)config->eps}};
}

ab_update_row ab_optimizer_device_row(ab_update_kind kind, const ab_optimizer_config *config, int64_t taken) {
    if (kind == AB_UPDATE_ADAM || kind == AB_UPDATE_ADAMW) return adam_row(kind, config, taken);
    const float fresh = taken == 1 ? 1.0f : (float)(1.0 - config->dampening);
    return (ab_update_row){{(float)config->lr, (float)config->weight_decay, (float)config->momentum, fresh}};
}
