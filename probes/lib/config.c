/* Reading of a probe's config. */
#include "probes/lib/config.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum type { SHARE, COUNT, MEASURE, TEXT, GROUPS, ABOUT } type;

#define AB_LIB_KEY(name, type) #name,
static const char *const names[] = {
#include "probes/lib/config.def"
};
#undef AB_LIB_KEY
#define AB_LIB_KEY(name, type) type,
static const type types[] = {
#include "probes/lib/config.def"
};
#undef AB_LIB_KEY

enum { FIXED = AB_LIB_KEY_half + 1 };
static const double largest_count = 9007199254740991.0;

const char *ab_lib_key_name(ab_lib_key key) { return names[key]; }

void ab_lib_config_init(ab_lib_config *config) {
    *config = (ab_lib_config){.budget = 0.01, .half = &ab_format_fp16};
    for (int i = 0; i < AB_LIB_OPTIMIZERS; i++) {
        ab_lib_optimizer *o = &config->optimizer[i];
        o->lr = o->momentum = o->dampening = o->beta1 = o->beta2 = o->eps = o->weight_decay = (double)NAN;
    }
}

void ab_lib_config_free(ab_lib_config *config) {
    for (int i = 0; i < AB_LIB_KEYS; i++) free(config->value[i]);
    for (int i = 0; i < config->abouts; i++) {
        free(config->about[i].key);
        free(config->about[i].value);
    }
    free(config->about);
    ab_lib_config_init(config);
}

char *ab_lib_config_text(const ab_lib_config *config, ab_lib_key key) {
    const char *text = config->value[key];
    if (!text) return NULL;
    const ab_lib_json value = {text, strlen(text), '"'};
    return ab_lib_json_text(&value);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static ab_status wrong(const char *key, const char *expected, const ab_lib_json *found) {
    char text[64];
    ab_text_show(text, sizeof text, "%.*s", (int)(found->length < 60 ? found->length : 60), found->at);
    return ab_fail(AB_CONFIG, "config: %s: expected %s, found %s", key, expected, text);
}

static bool is_count(const ab_lib_json *value) {
    const double x = ab_lib_json_number(value);
    return value->kind == '0' && x >= 0 && x <= largest_count && x == floor(x);
}

static ab_status check_type(const char *key, type wanted, const ab_lib_json *value) {
    const double x = value->kind == '0' ? ab_lib_json_number(value) : -1;
    if (value->kind == 'n') return AB_OK;
    switch (wanted) {
    case SHARE:
        return x >= 0 && x <= 1 ? AB_OK : wrong(key, "a number from 0 to 1", value);
    case COUNT:
        return is_count(value) ? AB_OK : wrong(key, "a whole number from 0 to 2^53 - 1", value);
    case MEASURE:
        return x >= 0 && isfinite(x) ? AB_OK : wrong(key, "a number from 0 on", value);
    case TEXT:
        return value->kind == '"' ? AB_OK : wrong(key, "a text", value);
    case GROUPS:
        return value->kind == '[' ? AB_OK : wrong(key, "an array of objects", value);
    case ABOUT:
        return value->kind == '{' ? AB_OK : wrong(key, "an object", value);
    }
    return AB_OK;
}

static char *copy_of(const ab_lib_json *value) {
    char *text = malloc(value->length + 1);
    if (!text) return NULL;
    memcpy(text, value->at, value->length);
    text[value->length] = '\0';
    return text;
}

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "config: out of memory"); }

/* ---- optimizers ------------------------------------------------------------------------------ */

static ab_status read_name(const ab_lib_json *value, ab_lib_optimizer *optimizer) {
    if (value->kind != '"') return wrong("groups: optimizer", "a text", value);
    char *text = ab_lib_json_text(value);
    if (!text) return no_memory();
    const bool fits = ab_text_fits(optimizer->name, sizeof optimizer->name, "%s", text);
    free(text);
    return fits ? AB_OK : wrong("groups: optimizer", "a name of at most 23 bytes", value);
}

static ab_status read_number(const char *key, const ab_lib_json *value, double *number) {
    if (value->kind != '0') return wrong(key, "a number", value);
    *number = ab_lib_json_number(value);
    return isfinite(*number) ? AB_OK : wrong(key, "a finite number", value);
}

static ab_status read_constant(const ab_lib_json *key, const ab_lib_json *value, ab_lib_optimizer *o) {
    const struct {
        const char *name;
        double *number;
    } numbers[] = {{"lr", &o->lr},
                   {"momentum", &o->momentum},
                   {"dampening", &o->dampening},
                   {"beta1", &o->beta1},
                   {"beta2", &o->beta2},
                   {"eps", &o->eps},
                   {"weight_decay", &o->weight_decay},
                   {"since", &o->since}};
    if (value->kind == 'n') return AB_OK;
    if (ab_lib_json_is(key, "optimizer")) return read_name(value, o);
    for (size_t i = 0; i < AB_COUNT_OF(numbers); i++)
        if (ab_lib_json_is(key, numbers[i].name))
            return read_number(numbers[i].name, value, numbers[i].number);
    if (ab_lib_json_is(key, "nesterov"))
        o->nesterov = value->kind == 't';
    else if (ab_lib_json_is(key, "fused"))
        o->fused = value->kind == 't';
    else
        return wrong("groups", "keys of an optimizer (optimizer, lr, momentum, ...)", key);
    return AB_OK;
}

static ab_status read_groups(ab_lib_config *config, const ab_lib_json *groups) {
    const char *at = NULL;
    ab_lib_json key, group, value;
    for (int i = 0; ab_lib_json_next(groups, &at, &key, &group); i++) {
        const char *inside = NULL;
        if (i == AB_LIB_OPTIMIZERS) return wrong("groups", "at most 16 groups", groups);
        if (group.kind != '{') return wrong("groups", "an array of objects", &group);
        while (ab_lib_json_next(&group, &inside, &key, &value))
            AB_TRY(read_constant(&key, &value, &config->optimizer[i]));
    }
    return AB_OK;
}

/* ---- about ----------------------------------------------------------------------------------- */

static ab_lib_about *about_called(ab_lib_config *config, const ab_lib_json *key) {
    for (int i = 0; i < config->abouts; i++)
        if (ab_lib_json_is(key, config->about[i].key)) return &config->about[i];
    ab_lib_about *list = realloc(config->about, ((size_t)config->abouts + 1) * sizeof *list);
    if (!list) return NULL;
    config->about = list;
    list[config->abouts] = (ab_lib_about){copy_of(key), NULL};
    return list[config->abouts].key ? &list[config->abouts++] : NULL;
}

static ab_status read_about(ab_lib_config *config, const ab_lib_json *about) {
    const char *at = NULL;
    ab_lib_json key, value;
    while (ab_lib_json_next(about, &at, &key, &value)) {
        char *text = copy_of(&value);
        ab_lib_about *entry = text ? about_called(config, &key) : NULL;
        if (!entry) free(text);
        if (!entry) return no_memory();
        free(entry->value);
        entry->value = text;
    }
    return AB_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static ab_status read_half(ab_lib_config *config, const ab_lib_json *value) {
    char *name = ab_lib_json_text(value);
    const ab_format *format = NULL;
    if (!name) return no_memory();
    const ab_status status = ab_format_find(name, &format);
    free(name);
    if (status == AB_OK && (format == &ab_format_fp16 || format == &ab_format_bf16)) {
        config->half = format;
        return AB_OK;
    }
    return wrong("half", "\"fp16\" or \"bf16\"", value);
}

static ab_status apply(ab_lib_config *config, int key, const ab_lib_json *value) {
    switch (key) {
    case AB_LIB_KEY_budget:
        config->budget = ab_lib_json_number(value);
        break;
    case AB_LIB_KEY_probe_every:
        config->every = (int64_t)ab_lib_json_number(value);
        break;
    case AB_LIB_KEY_steps:
        config->steps = (int64_t)ab_lib_json_number(value);
        break;
    case AB_LIB_KEY_half:
        return read_half(config, value);
    case AB_LIB_KEY_groups:
        return read_groups(config, value);
    case AB_LIB_KEY_about:
        return read_about(config, value);
    default:
        break;
    }
    return AB_OK;
}

static ab_status set(ab_lib_config *config, int key, const ab_lib_json *value) {
    AB_TRY(check_type(names[key], types[key], value));
    if (value->kind == 'n') return AB_OK;
    AB_TRY(apply(config, key, value));
    if (types[key] == ABOUT) return AB_OK;
    char *text = copy_of(value);
    if (!text) return no_memory();
    free(config->value[key]);
    config->value[key] = text;
    return AB_OK;
}

static ab_status find(const char *name, int *key) {
    for (*key = 0; *key < AB_LIB_KEYS; ++*key)
        if (strcmp(name, names[*key]) == 0) return AB_OK;
    const char *near = ab_nearest(name, names, AB_LIB_KEYS);
    return ab_fail(AB_CONFIG, "config: unknown key \"%s\"%s%s", ab_text_brief(name, 60),
                   near ? "; nearest: " : "", near ? near : "");
}

ab_status ab_lib_config_set(ab_lib_config *config, const char *key, const char *text, bool later) {
    ab_lib_json value;
    int found;
    AB_TRY(find(key, &found));
    if (later && found < FIXED)
        return ab_fail(AB_CONFIG, "config: %s cannot be changed after opening", names[found]);
    if (ab_lib_json_check(text, &value) != AB_OK)
        return ab_fail_prefix(AB_CONFIG, "config: %s", names[found]);
    return set(config, found, &value);
}

ab_status ab_lib_config_read(ab_lib_config *config, const char *text) {
    ab_lib_json object, key, value;
    const char *at = NULL;
    char name[64];
    int found;
    if (ab_lib_json_check(text, &object) != AB_OK) return ab_fail_prefix(AB_CONFIG, "config");
    if (object.kind != '{') return wrong("the whole", "a JSON object", &object);
    while (ab_lib_json_next(&object, &at, &key, &value)) {
        ab_text_show(name, sizeof name, "%.*s", (int)(key.length < 60 ? key.length : 60), key.at);
        AB_TRY(find(name, &found));
        AB_TRY(set(config, found, &value));
    }
    return AB_OK;
}
