/* A remedy's options and text, which is made from them. */
#include "reports/diagnose/remedy/remedy.h"

#include "kernels/core/text.h"

#include <stdarg.h>
#include <string.h>

/* `value` with quotes if a shell would not take it as one word. */
static void append_value(ab_remedy *remedy, const char *value) {
    const char *quote =
        strpbrk(value, "*?;&|<>()$` \"") || (strchr(value, ',') && strchr(value, '=')) ? "'" : "";
    ab_text_append(remedy->text, sizeof remedy->text, " %s%s%s", quote, value, quote);
}

static bool has(const ab_remedy *remedy, const char *name, const char *value) {
    for (int i = 0; i < remedy->options; i += 2)
        if (strcmp(remedy->option[i], name) == 0 && strcmp(remedy->option[i + 1], value) == 0) return true;
    return false;
}

void ab_remedy_add_text(ab_remedy *remedy, const char *format, ...) {
    char words[AB_REMEDY_TEXT];
    va_list args;
    va_start(args, format);
    ab_text_show_args(words, sizeof words, format, args);
    va_end(args);
    ab_text_append(remedy->text, sizeof remedy->text, "%s%s", remedy->text[0] ? "; " : "", words);
}

static void append_option(ab_remedy *remedy, const char *note, const char *name, const char *value) {
    ab_text_append(remedy->text, sizeof remedy->text, "%s%s", remedy->text[0] ? " " : "", name);
    append_value(remedy, value);
    if (note) ab_text_append(remedy->text, sizeof remedy->text, " (%s)", note);
}

void ab_remedy_option(ab_remedy *remedy, const char *note, const char *name, const char *format, ...) {
    char value[AB_REMEDY_TEXT];
    va_list args;
    va_start(args, format);
    const bool whole = ab_text_fits_args(value, sizeof value, format, args);
    va_end(args);
    if (!whole || remedy->options + 2 > AB_REMEDY_OPTIONS || has(remedy, name, value)) return;
    ab_text_exact(remedy->option[remedy->options++], AB_REMEDY_TEXT, "%s", name);
    ab_text_exact(remedy->option[remedy->options++], AB_REMEDY_TEXT, "%s", value);
    append_option(remedy, note, name, value);
}

/* Of repeated options the last one counts, except --set with different properties. */
static bool contradicts(const ab_remedy *remedy, const char *name, const char *value) {
    const bool property = strcmp(name, "--set") == 0;
    for (int i = 0; i < remedy->options; i += 2)
        if (strcmp(remedy->option[i], name) == 0 && !property && strcmp(remedy->option[i + 1], value) != 0)
            return true;
    return false;
}

static bool may_join(const ab_remedy *remedy, const ab_remedy *other) {
    if (remedy->options == 0 || remedy->options + other->options > AB_REMEDY_OPTIONS) return false;
    bool adds = false;
    for (int i = 0; i < other->options; i += 2) {
        if (contradicts(remedy, other->option[i], other->option[i + 1])) return false;
        adds = adds || !has(remedy, other->option[i], other->option[i + 1]);
    }
    return adds;
}

void ab_remedy_join(ab_remedy *remedy, const ab_remedy *other, const char *id) {
    if (!may_join(remedy, other)) return;
    ab_text_append(remedy->text, sizeof remedy->text, "; also");
    for (int i = 0; i < other->options; i += 2)
        ab_remedy_option(remedy, NULL, other->option[i], "%s", other->option[i + 1]);
    ab_text_append(remedy->text, sizeof remedy->text, " (%s)", id);
}
