#include "reports/record/settings.h"

#include <stdlib.h>
#include <string.h>

static const char *const not_compared[] = {"levels",       "scales",      "half",           "rounds",
                                           "probes",       "probe_every", "probe_budget",   "noise_floor",
                                           "eval_limit",   "net_path",    "min_loss_scale", "max_loss_scale",
                                           "scale_window", "epochs",      "overrides",      "seeds"};

bool ab_setting_counts(const char *key) {
    for (size_t i = 0; i < AB_COUNT_OF(not_compared); i++)
        if (strcmp(key, not_compared[i]) == 0) return false;
    return true;
}

static bool is_unset(const cJSON *value) {
    return cJSON_IsNull(value) || cJSON_IsFalse(value) || (cJSON_IsArray(value) && !value->child);
}

static uint64_t add_text(uint64_t digest, const char *text) {
    for (; *text; text++) digest = (digest ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return digest;
}

uint64_t ab_settings_digest(const cJSON *config) {
    uint64_t sum = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, config) {
        if (!item->string || !ab_setting_counts(item->string) || is_unset(item)) continue;
        char *value = cJSON_PrintUnformatted(item);
        uint64_t digest = add_text(UINT64_C(0xcbf29ce484222325), item->string);
        if (value) digest = add_text(add_text(digest, "="), value);
        free(value);
        sum += digest;
    }
    return sum;
}
