/* Parses --grid and combines its values with dialects. */
#include "bench/replay/replay.h"
#include "kernels/core/number.h"
#include "kernels/core/power_range.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS = AB_SCALER_KEYS, VALUES = 64, WORD = 64 };

typedef struct axis {
    char key[WORD];
    char value[VALUES][WORD];
    int values;
} axis;

static ab_status add_value(axis *a, const char *text, size_t length) {
    if (a->values == VALUES)
        return ab_fail(AB_USAGE, "--grid: %s: expected at most %d values", a->key, VALUES);
    if (length == 0 || !ab_text_fits(a->value[a->values], WORD, "%.*s", (int)length, text))
        return ab_fail(AB_USAGE, "--grid: %s: expected values such as 100/500/2000 or 2^8..2^16", a->key);
    a->values++;
    return AB_OK;
}

/* "2^8..2^16": every power between, or every fourth with ":4". Values are written as numbers, because keys
 * that count steps take whole ones. */
static ab_status add_range(axis *a, const char *text, size_t length) {
    char word[WORD], power[AB_POWER_RANGE_ITEM], *end;
    ab_power_range range;
    const char *rest = ab_text_fits(word, sizeof word, "%.*s", (int)length, text)
                           ? ab_power_range_parse(word, &range)
                           : NULL;
    if (!rest || rest[0])
        return ab_fail(
            AB_USAGE,
            "--grid: %s: expected a range of powers such as 2^8..2^16 or 2^8..2^16:4 (every fourth "
            "power), the lower one first",
            a->key);
    for (int i = 0; i < range.count; i++) {
        const double x = ab_number_read(ab_power_range_item(&range, i, power), &end);
        AB_TRY(add_value(a, word, strlen(ab_text_exact(word, sizeof word, "%.17g", x))));
    }
    return AB_OK;
}

static ab_status read_values(axis *a, const char *text, size_t length) {
    for (const char *end = text + length; text <= end;) {
        const char *slash = memchr(text, '/', (size_t)(end - text)), *stop = slash ? slash : end;
        const char *dots = strstr(text, "..");
        if (dots && dots < stop)
            AB_TRY(add_range(a, text, (size_t)(stop - text)));
        else
            AB_TRY(add_value(a, text, (size_t)(stop - text)));
        text = stop + 1;
    }
    return AB_OK;
}

static ab_status read_axes(const char *grid, axis *axes, int *count) {
    for (const char *at = grid; *at;) {
        const size_t length = strcspn(at, ","), key = strcspn(at, "=");
        if (*count == KEYS) return ab_fail(AB_USAGE, "--grid: expected at most %d keys", KEYS);
        axis *a = &axes[(*count)++];
        if (key == 0 || key >= length || !ab_text_fits(a->key, sizeof a->key, "%.*s", (int)key, at))
            return ab_fail(AB_USAGE, "--grid: expected KEY=VALUES such as window=100/2000, found '%s'",
                           ab_text_brief(at, 60));
        AB_TRY(read_values(a, at + key + 1, length - key - 1));
        at += length + (at[length] == ',');
    }
    return *count > 0 ? AB_OK : ab_fail(AB_USAGE, "--grid: expected KEY=VALUES such as window=100/2000");
}

/* ---- combinations ----------------------------------------------------------------------------- */

typedef struct list {
    ab_scaler_config *config;
    int count;
} list;

static ab_status append(list *l, const ab_scaler_config *config) {
    if (l->count == AB_REPLAY_ROWS)
        return ab_fail(AB_USAGE, "scaler: expected at most %d scalers, dialects times grid", AB_REPLAY_ROWS);
    l->config[l->count++] = *config;
    return AB_OK;
}

static bool has_key(const ab_scaler_config *config, const axis *a) {
    return ab_scaler_key_index(config->kind, a->key) >= 0;
}

static ab_status combine(const axis *axes, int count, const ab_scaler_config *config, list *l) {
    if (count == 0) return append(l, config);
    if (!has_key(config, axes)) return combine(axes + 1, count - 1, config, l);
    for (int i = 0; i < axes->values; i++) {
        ab_scaler_config other = *config;
        if (ab_scaler_set(&other, axes->key, axes->value[i]) != AB_OK)
            return ab_fail_prefix(AB_USAGE, "--grid");
        AB_TRY(combine(axes + 1, count - 1, &other, l));
    }
    return AB_OK;
}

/* A key that no dialect has is a mistake. */
static ab_status check_keys(const axis *axes, int count, const ab_scaler_config *base, int bases) {
    for (int k = 0; k < count; k++) {
        bool known = false;
        for (int i = 0; i < bases; i++) known = known || has_key(&base[i], &axes[k]);
        if (!known)
            return ab_fail(AB_USAGE, "--grid: no dialect here has the key '%s'",
                           ab_text_brief(axes[k].key, 40));
    }
    return AB_OK;
}

ab_status ab_replay_grid(const char *grid, const ab_scaler_config *base, int bases,
                         ab_scaler_config **configs, int *count) {
    axis *axes = calloc(KEYS, sizeof *axes);
    list l = {calloc(AB_REPLAY_ROWS, sizeof *l.config), 0};
    int keys = 0;
    ab_status status = AB_OK;
    *configs = NULL;
    *count = 0;
    if (!axes || !l.config) status = ab_fail(AB_NO_MEMORY, "scaler: out of memory");
    if (status == AB_OK && grid) status = read_axes(grid, axes, &keys);
    if (status == AB_OK) status = check_keys(axes, keys, base, bases);
    for (int i = 0; i < bases && status == AB_OK; i++) status = combine(axes, keys, &base[i], &l);
    free(axes);
    if (status != AB_OK) free(l.config);
    if (status != AB_OK) return status;
    *configs = l.config;
    *count = l.count;
    return AB_OK;
}
