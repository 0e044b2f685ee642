/* The list of loss scalers. */
#include "bench/amp/scaler.h"

#include "kernels/core/nearest.h"

#include <string.h>

#define AB_SCALER(name) extern const ab_scaler_kind ab_scaler_##name;
#include "bench/amp/scalers.def"
#undef AB_SCALER

static const ab_scaler_kind *const kinds[] = {
#define AB_SCALER(name) &ab_scaler_##name,
#include "bench/amp/scalers.def"
#undef AB_SCALER
};

int ab_scaler_count(void) { return (int)AB_COUNT_OF(kinds); }
const ab_scaler_kind *ab_scaler_at(int i) { return kinds[i]; }

ab_status ab_scaler_find(const char *name, const ab_scaler_kind **kind) {
    const char *names[AB_COUNT_OF(kinds)];
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++) {
        names[i] = kinds[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *kind = kinds[i];
        return AB_OK;
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "unknown loss scaler '%s'%s%s", name, near ? "; nearest: " : "",
                   near ? near : "");
}

void ab_scaler_start(ab_scaler *scaler, const ab_scaler_kind *kind, ab_scaler_config config) {
    if (config.init == 0) config.init = kind->defaults.init;
    if (config.min_scale == 0) config.min_scale = kind->defaults.min_scale;
    if (config.max_scale == 0) config.max_scale = kind->defaults.max_scale;
    if (config.window == 0) config.window = kind->defaults.window;
    *scaler = (ab_scaler){.kind = kind, .config = config, .scale = config.init};
    if (kind->start) kind->start(scaler);
}
