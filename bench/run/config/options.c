/* Parses and documents the options of options.def. */
#include "bench/run/config/options.h"

#include <stdint.h>

#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <string.h>

typedef struct option_row {
    const char *id, *argument, *fallback;
    ab_option_trait trait;
    const char *group, *text;
} option_row;

static const option_row rows[] = {
#define AB_OPTION(id, argument, fallback, trait, group, text)                                                \
    {#id, argument, fallback, AB_OPTION_TRAIT_##trait, group, text},
#include "bench/run/config/options.def"
#undef AB_OPTION
};

const char *ab_option_name(ab_option_id id, char *text) {
    ab_text_exact(text, AB_OPTION_NAME, "--%s", rows[id].id);
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
    return text;
}

bool ab_option_is_flag(ab_option_id id) { return rows[id].argument == NULL; }
ab_option_trait ab_option_trait_of(ab_option_id id) { return rows[id].trait; }
const char *ab_option_key(ab_option_id id) { return rows[id].id; }

bool ab_option_is_config(ab_option_id id) { return rows[id].trait <= AB_OPTION_TRAIT_checkpoints; }

ab_option_kind ab_option_kind_of(ab_option_id id) {
    static const struct {
        const char *argument;
        ab_option_kind kind;
    } kinds[] = {{"N", AB_OPTION_INTEGER},
                 {"X", AB_OPTION_NUMBER},
                 {"DECAY", AB_OPTION_NUMBER},
                 {"LIST", AB_OPTION_LIST}};
    if (!rows[id].argument) return AB_OPTION_FLAG;
    for (size_t i = 0; i < AB_COUNT_OF(kinds); i++)
        if (strcmp(rows[id].argument, kinds[i].argument) == 0) return kinds[i].kind;
    return AB_OPTION_TEXT;
}

bool ab_option_of_key(const char *key, ab_option_id *id) {
    for (int i = 0; key && i < AB_OPTION_COUNT; i++) {
        if (strcmp(rows[i].id, key) != 0) continue;
        *id = (ab_option_id)i;
        return true;
    }
    return false;
}

static ab_status unknown_option(const char *word) {
    char names[AB_OPTION_COUNT][AB_OPTION_NAME];
    const char *list[AB_OPTION_COUNT];
    for (int i = 0; i < AB_OPTION_COUNT; i++) list[i] = ab_option_name((ab_option_id)i, names[i]);
    const char *near = ab_nearest(word, list, AB_OPTION_COUNT);
    return ab_fail(AB_USAGE, "unknown option '%s'%s%s%s (see `ampbench run --help`)", word,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Finds the option of "--name" or "--name=value"; *value points behind the equals sign, or is NULL. --level
 * is
 * --levels. */
static ab_status find_option(const char *word, ab_option_id *id, const char **value) {
    const char *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    *value = equals ? equals + 1 : NULL;
    if (length == strlen("--level") && strncmp(word, "--level", length) == 0) {
        *id = AB_OPTION_levels;
        return AB_OK;
    }
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        char name[AB_OPTION_NAME];
        ab_option_name((ab_option_id)i, name);
        if (strlen(name) != length || strncmp(name, word, length) != 0) continue;
        *id = (ab_option_id)i;
        return AB_OK;
    }
    char shown[AB_OPTION_NAME];
    ab_text_show(shown, sizeof shown, "%.*s", (int)length, word);
    return unknown_option(shown);
}

static ab_status store(ab_options *options, ab_option_id id, const char *value) {
    if (id == AB_OPTION_set) {
        if (options->overrides == AB_MAX_OVERRIDES)
            return ab_fail(AB_USAGE, "--set: at most %d overrides", AB_MAX_OVERRIDES);
        options->override[options->overrides++] = value;
    }
    options->text[id] = value;
    options->given[id] = true;
    return AB_OK;
}

ab_status ab_options_parse(int argc, char *const *argv, ab_options *options) {
    memset(options, 0, sizeof *options);
    for (int i = 0; i < AB_OPTION_COUNT; i++) options->text[i] = rows[i].argument ? rows[i].fallback : NULL;
    for (int i = 1; i < argc; i++) {
        const char *word = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        ab_option_id id = AB_OPTION_help;
        const char *value = NULL;
        if (word[0] != '-')
            return ab_fail(AB_USAGE, "expected an option, found '%s' (see `ampbench run --help`)", word);
        AB_TRY(find_option(word, &id, &value));
        char name[AB_OPTION_NAME];
        ab_option_name(id, name);
        if (ab_option_is_flag(id)) {
            if (value) return ab_fail(AB_USAGE, "%s takes no value, found '%s'", name, value);
            value = "";
        } else if (!value) {
            if (i + 1 >= argc)
                return ab_fail(AB_USAGE, "%s: expected %s, found nothing", name, rows[id].argument);
            value = argv[++i];
        }
        if (rows[id].argument && value[0] == '\0' && id != AB_OPTION_label)
            return ab_fail(AB_USAGE, "%s: expected %s, found nothing", name, rows[id].argument);
        AB_TRY(store(options, id, value));
    }
    return AB_OK;
}

void ab_options_help(FILE *out) {
    const char *group = "";
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        const option_row *row = &rows[i];
        char name[AB_OPTION_NAME], left[2 * AB_OPTION_NAME];
        if (strcmp(group, row->group) != 0) ab_print(out, "\n%s:\n", row->group);
        group = row->group;
        ab_option_name((ab_option_id)i, name);
        ab_text_exact(left, sizeof left, "%s%s%s", name, row->argument ? " " : "",
                      row->argument ? row->argument : "");
        ab_print(out, "  %-24s %s", left, row->text);
        if (row->argument && row->fallback) ab_print(out, " (default %s)", row->fallback);
        fputc('\n', out);
    }
}

int ab_options_words(const ab_options *options, char **argv) {
    static char names[AB_OPTION_COUNT][AB_OPTION_NAME];
    int n = 0;
    for (int i = 0; i < AB_OPTION_COUNT; i++) {
        ab_option_id id = (ab_option_id)i;
        ab_option_name(id, names[i]);
        if (!options->given[i] || !ab_option_is_config(id) || id == AB_OPTION_set) continue;
        argv[n++] = names[i];
        if (!ab_option_is_flag(id)) argv[n++] = (char *)(uintptr_t)options->text[i];
    }
    for (int i = 0; i < options->overrides; i++) {
        argv[n++] = names[AB_OPTION_set];
        argv[n++] = (char *)(uintptr_t)options->override[i];
    }
    return n;
}
