/* Names of tensors' roles. */
#include "probes/watch.h"

const char *ab_probe_role_name(ab_probe_role role) {
    static const char *const names[AB_ROLE_COUNT] = {
        "weight_gradient", "activation_gradient", "unscaled_gradient", "activation",
        "weight",          "optimizer_state"};
    return names[role];
}
