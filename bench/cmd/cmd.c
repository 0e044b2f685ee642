/* Arguments of commands: their options by name. */
#include "bench/cmd/cmd.h"

#include "kernels/core/text.h"

#include <string.h>

/* Maximum length of a whole word and of an option's name in messages. */
enum { SHOWN_WORD = 60, SHOWN_NAME = 39 };

bool ab_is_option(const char *name, int argc, char **argv, int *i, const char **value) {
    const char *word = argv[*i];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] != '=' && word[length] != '\0')) return false;
    if (word[length] == '=')
        *value = word + length + 1;
    else
        *value = *i + 1 < argc ? argv[++*i] : "";
    return true;
}

ab_status ab_unknown_option(const char *command, const char *word, const char *const *option, int count) {
    const char *near = ab_nearest(word, option, count);
    return ab_fail(AB_USAGE, "%s: unknown option %s; %s%s", command, ab_text_brief(word, SHOWN_WORD),
                   near ? "nearest: " : "see --help", near ? near : "");
}

static ab_status unknown(const ab_argument_list *list, const char *word) {
    const char *names[AB_ARGUMENTS];
    char name[SHOWN_NAME + 1];
    for (int k = 0; k < list->count; k++) names[k] = list->argument[k].name;
    ab_text_show(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const char *meant = list->shows_whole_words ? word : name, *near = ab_nearest(meant, names, list->count);
    return ab_fail(AB_USAGE, "%s: unknown option '%s'%s%s%s%s", list->command,
                   ab_text_brief(meant, SHOWN_WORD), near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "", list->hint ? list->hint : "");
}

static const ab_argument *find(const ab_argument_list *list, const char *word, size_t length) {
    for (int k = 0; k < list->count; k++) {
        const ab_argument *a = &list->argument[k];
        bool taken = a->value || a->flag || a->take;
        if (taken && strlen(a->name) == length && strncmp(a->name, word, length) == 0) return a;
    }
    return NULL;
}

ab_status ab_take_option(const ab_argument_list *list, int argc, char **argv, int *i) {
    const char *word = argv[*i], *value = NULL;
    size_t length = strcspn(word, "=");
    const ab_argument *a = find(list, word, length);
    if (!a) return unknown(list, word);
    if (a->flag) {
        if (word[length] == '=') return ab_fail(AB_USAGE, "%s: %s takes no value", list->command, a->name);
        *a->flag = true;
        return AB_OK;
    }
    if (word[length] != '=' && *i + 1 >= argc)
        return ab_fail(AB_USAGE, "%s: %s expects a value", list->command, word);
    value = word[length] == '=' ? word + length + 1 : argv[++*i];
    if (a->take) return a->take(a->context, value);
    *a->value = value;
    return AB_OK;
}
