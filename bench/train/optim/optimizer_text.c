/* The list of optimizers, and an optimizer with its keys as text. */
#include "bench/train/optim/optimizer.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AB_OPTIMIZER(name) extern const ab_optimizer ab_optimizer_##name;
#include "bench/train/optim/optimizers.def"
#undef AB_OPTIMIZER

static const ab_optimizer *const optimizers[] = {
#define AB_OPTIMIZER(name) &ab_optimizer_##name,
#include "bench/train/optim/optimizers.def"
#undef AB_OPTIMIZER
};

int ab_optimizer_count(void) { return (int)AB_COUNT_OF(optimizers); }
const ab_optimizer *ab_optimizer_at(int i) { return optimizers[i]; }

ab_status ab_optimizer_find(const char *name, const ab_optimizer **optimizer) {
    const char *names[AB_COUNT_OF(optimizers)];
    for (size_t i = 0; i < AB_COUNT_OF(optimizers); i++) {
        names[i] = optimizers[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *optimizer = optimizers[i];
        return AB_OK;
    }
    char list[512] = "";
    for (size_t i = 0; i < AB_COUNT_OF(optimizers); i++)
        ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE, "--optimizer: expected one of %s, found '%s'%s%s%s", list, name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* ---- keys ------------------------------------------------------------------------------------ */

static bool is_truth(const ab_optimizer_key *key) { return key->low == 0 && key->high == 0; }

static ab_status unknown_key(const ab_optimizer *optimizer, const char *key) {
    const char *names[AB_OPTIMIZER_KEYS];
    char list[AB_OPTIMIZER_TEXT] = "";
    for (int i = 0; i < optimizer->keys; i++) {
        names[i] = optimizer->key[i].name;
        ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
    }
    if (optimizer->keys == 0)
        return ab_fail(AB_USAGE, "--optimizer %s: it has no keys of its own, found '%s'", optimizer->name,
                       key);
    const char *near = ab_nearest(key, names, optimizer->keys);
    return ab_fail(AB_USAGE, "--optimizer %s: expected one of %s, found '%s'%s%s%s", optimizer->name, list,
                   key, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ab_status parse_truth(const ab_optimizer *optimizer, const char *key, const char *text,
                             double *value) {
    const bool yes = strcmp(text, "True") == 0 || strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "False") != 0 && strcmp(text, "false") != 0)
        return ab_fail(AB_USAGE, "--optimizer %s: %s: expected True or False, found '%s'", optimizer->name,
                       key, text);
    *value = yes;
    return AB_OK;
}

/* A key has two values, any number of a range, or True and False. */
static ab_status set_key(const ab_optimizer *optimizer, const char *name, const char *text,
                         ab_optimizer_config *config) {
    int i = 0;
    while (i < optimizer->keys && strcmp(optimizer->key[i].name, name) != 0) i++;
    if (i == optimizer->keys) return unknown_key(optimizer, name);
    const ab_optimizer_key *key = &optimizer->key[i];
    if (is_truth(key)) return parse_truth(optimizer, name, text, &config->value[i]);
    char *end;
    const double value = ab_number_read(text, &end);
    const bool number = end != text && *end == '\0' && value >= key->low && value <= key->high;
    if (key->step > 0 && !(number && fmod(value - key->low, key->step) == 0))
        return ab_fail(AB_USAGE, "--optimizer %s: %s: expected %.9g or %.9g, found '%s'", optimizer->name,
                       name, key->low, key->high, text);
    if (!number)
        return ab_fail(AB_USAGE, "--optimizer %s: %s: expected a number from %.9g to %.9g, found '%s'",
                       optimizer->name, name, key->low, key->high, text);
    config->value[i] = value;
    return AB_OK;
}

static ab_status set_keys(const ab_optimizer *optimizer, char *text, ab_optimizer_config *config) {
    for (char *rest = text; rest;) {
        char *key = rest, *comma = strchr(rest, ',');
        if (comma) *comma = '\0';
        rest = comma ? comma + 1 : NULL;
        char *equals = strchr(key, '=');
        if (!equals || equals == key)
            return ab_fail(AB_USAGE, "--optimizer %s: expected KEY=VALUE, found '%s'", optimizer->name, key);
        *equals = '\0';
        AB_TRY(set_key(optimizer, key, equals + 1, config));
    }
    return AB_OK;
}

ab_status ab_optimizer_parse(const char *text, const ab_optimizer **optimizer, ab_optimizer_config *config) {
    char copy[AB_OPTIMIZER_TEXT];
    if (!ab_text_fits(copy, sizeof copy, "%s", text))
        return ab_fail(AB_USAGE, "--optimizer: too long: '%s...'", ab_text_brief(text, 40));
    char *colon = strchr(copy, ':');
    if (colon) *colon = '\0';
    AB_TRY(ab_optimizer_find(copy, optimizer));
    *config = (*optimizer)->defaults;
    return colon ? set_keys(*optimizer, colon + 1, config) : AB_OK;
}

const char *ab_optimizer_value_text(const ab_optimizer *optimizer, const ab_optimizer_config *config, int key,
                                    char *text) {
    if (is_truth(&optimizer->key[key]))
        ab_text_exact(text, AB_OPTIMIZER_VALUE, "%s", config->value[key] != 0 ? "True" : "False");
    else
        ab_text_exact(text, AB_OPTIMIZER_VALUE, "%.9g", config->value[key]);
    return text;
}

bool ab_optimizer_sums_in_half(const ab_optimizer *optimizer, const ab_optimizer_config *config) {
    return optimizer->fp32_grads_key > 0 && config->value[optimizer->fp32_grads_key - 1] == 0;
}

const char *ab_optimizer_decay_name(const ab_optimizer *optimizer, const ab_optimizer_config *config) {
    const int key = optimizer->other_decay_key;
    const bool other = key > 0 && config->value[key - 1] != optimizer->defaults.value[key - 1];
    return (optimizer->decay == AB_DECAY_L2) != other ? "L2" : "decoupled";
}
