/* The overrides of an entry of --levels, and selection of the items of --set and --to by level. Does not
 * interpret them. */
#include "bench/run/config/level_options.h"

#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

/* Appends to an owned text, with a separator behind an earlier one. */
static ab_status append(char **text, const char *separator, const char *label, const char *item,
                        size_t length) {
    char *longer =
        ab_text_new("%s%s%s%.*s", *text ? *text : "", *text ? separator : "", label, (int)length, item);
    if (!longer) return ab_fail(AB_NO_MEMORY, "--set, --to: out of memory");
    free(*text);
    *text = longer;
    return AB_OK;
}

/* Whether an item acts on `level`; *own is the item without the name of a level. */
static bool acts_on(const char *item, const ab_level *level, const char **own, bool *named) {
    const ab_level *found = ab_level_named(item, own);
    *named = found != NULL;
    if (!level || !found) return !found && (!level || !ab_level_is_reference(level));
    return found == level;
}

static ab_status take_override(const char *item, const ab_level *level, ab_level_options *own) {
    const char *rest;
    bool named;
    if (!acts_on(item, level, &rest, &named)) return AB_OK;
    own->override[own->overrides++] = rest;
    return named ? append(&own->named, ", ", "", rest, strlen(rest)) : AB_OK;
}

static ab_status take_layer(const char *item, size_t length, const ab_level *level, ab_level_options *own) {
    const char *rest;
    bool named;
    if (!acts_on(item, level, &rest, &named)) return AB_OK;
    length -= (size_t)(rest - item);
    AB_TRY(append(&own->layers, ",", "", rest, length));
    return named ? append(&own->named, ", ", "to ", rest, length) : AB_OK;
}

ab_status ab_level_options_select(const ab_options *options, const ab_level *level, ab_level_options *own) {
    own->overrides = 0;
    for (int i = 0; i < own->owns; i++)
        AB_TRY(append(&own->named, ", ", "", own->own[i], strlen(own->own[i])));
    for (int i = 0; i < options->overrides; i++) AB_TRY(take_override(options->override[i], level, own));
    for (const char *text = options->text[AB_OPTION_to]; text;) {
        const size_t length = strcspn(text, ",");
        AB_TRY(take_layer(text, length, level, own));
        text = text[length] ? text + length + 1 : NULL;
    }
    return AB_OK;
}

void ab_level_options_free(ab_level_options *own) {
    free(own->entry);
    free(own->parts);
    free(own->layers);
    free(own->named);
    *own = (ab_level_options){.entry = NULL};
}

static bool sets_scale(const char *override) { return strncmp(override, "loss_scale=", 11) == 0; }

ab_status ab_level_options_split(ab_level_options *own) {
    const char *rest;
    if (!ab_level_named(own->entry, &rest)) return AB_OK;
    own->parts = ab_text_new("%s", rest);
    if (!own->parts) return ab_fail(AB_NO_MEMORY, "--levels: out of memory");
    for (char *part = own->parts; part;) {
        char *comma = strchr(part, ',');
        const bool continues = own->owns > 0 && sets_scale(own->own[own->owns - 1]) && strchr(part, '=') &&
                               !ab_policy_is_property(part);
        if (continues) part[-1] = ',';
        if (!continues && own->owns == AB_MAX_OVERRIDES)
            return ab_fail(AB_USAGE, "--levels: at most %d overrides an entry", (int)AB_MAX_OVERRIDES);
        if (!continues) own->own[own->owns++] = part;
        if (comma) *comma = '\0';
        part = comma ? comma + 1 : NULL;
    }
    for (int i = 0; i < own->owns; i++) own->own_scale |= sets_scale(own->own[i]);
    return AB_OK;
}

/* ---- items without effect --------------------------------------------------------------------- */

typedef struct unused {
    const ab_level *const *level;
    int levels;
    bool alone;      /* O0 is the only level */
    bool *elsewhere; /* an item names a level that is not run */
    char *text;
    size_t size;
} unused;

static bool is_run(const unused *u, const ab_level *wanted) {
    for (int i = 0; i < u->levels; i++)
        if (u->level[i] == wanted) return true;
    return false;
}

static void add(const unused *u, const char *option, const char *item, size_t length) {
    ab_text_append(u->text, u->size, "%s%s %.*s", u->text[0] ? ", " : "", option, (int)length, item);
}

static void check_item(const unused *u, const char *option, const char *item, size_t length) {
    const char *rest;
    const ab_level *named = ab_level_named(item, &rest);
    if (named && !is_run(u, named)) *u->elsewhere = true;
    if (named ? !is_run(u, named) : u->alone) add(u, option, item, length);
}

static void check_items(const unused *u, const ab_options *options) {
    for (int i = 0; i < options->overrides; i++)
        check_item(u, "--set", options->override[i], strlen(options->override[i]));
    for (const char *text = options->text[AB_OPTION_to]; text;) {
        const size_t length = strcspn(text, ",");
        check_item(u, "--to", text, length);
        text = text[length] ? text + length + 1 : NULL;
    }
}

static void check_option(const unused *u, const ab_options *options, ab_option_id id, bool changes) {
    char name[AB_OPTION_NAME];
    const char *value = options->text[id];
    if (u->alone && changes) add(u, ab_option_name(id, name), value, strlen(value));
}

void ab_level_options_unused(const ab_options *options, const ab_level *const *level, int levels, char *text,
                             size_t size) {
    static const char half[] = "half";
    bool elsewhere = false;
    const unused u = {level, levels, levels == 1 && ab_level_is_reference(level[0]), &elsewhere, text, size};
    text[0] = '\0';
    check_items(&u, options);
    check_option(&u, options, AB_OPTION_scales, strcmp(options->text[AB_OPTION_scales], "default") != 0);
    check_option(&u, options, AB_OPTION_optimizer_state,
                 strcmp(options->text[AB_OPTION_optimizer_state], half) == 0);
    check_option(&u, options, AB_OPTION_accumulate, strcmp(options->text[AB_OPTION_accumulate], half) == 0);
    check_option(&u, options, AB_OPTION_ema_format, strcmp(options->text[AB_OPTION_ema_format], half) == 0);
    check_option(&u, options, AB_OPTION_clip_norm_format, options->given[AB_OPTION_clip_norm_format]);
    check_option(&u, options, AB_OPTION_math, strcmp(options->text[AB_OPTION_math], "tf32") == 0);
    if (!text[0]) return;
    if (u.alone && !elsewhere)
        ab_text_append(text, size,
                       ": not for O0, the fp32 reference, unless by name, e.g. --set O0:loss_scale=128");
    else
        ab_text_append(text, size, ": no such level is in --levels");
}
