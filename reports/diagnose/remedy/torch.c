/* Remedies in the words of a PyTorch program: the line to change in place of the options of `ampbench run`,
 * which somebody whose record a probe wrote has not. The words are in torch.def. */
#include "kernels/core/text.h"
#include "reports/diagnose/remedy/remedy.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *id, *text;
} rows[] = {
#define AB_TORCH_REMEDY(id, text) {#id, text},
#include "reports/diagnose/remedy/torch.def"
#undef AB_TORCH_REMEDY
};

static const char *text_of(const char *id) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].id, id) == 0) return rows[i].text;
    return NULL;
}

/* The number of an option of the remedy, after `key` in its value ("" : the value itself); 0 if there is
 * none. */
static double number_of(const ab_remedy *remedy, const char *name, const char *key) {
    for (int i = 0; i + 1 < remedy->options; i += 2) {
        const char *at = strcmp(remedy->option[i], name) == 0 ? strstr(remedy->option[i + 1], key) : NULL;
        if (at) return strtod(at + strlen(key), NULL);
    }
    return 0;
}

/* 2**N of the power of two at or below the scale that the remedy names; 2**12 without one.
 */
static void scale_text(const ab_remedy *remedy, char *text, size_t size) {
    const double scale = number_of(remedy, "--scales", "init=");
    ab_text_show(text, size, "2**%d", scale > 0 && isfinite(scale) ? ilogb(scale) : 12);
}

static void rate_text(const ab_remedy *remedy, char *text, size_t size) {
    const double rate = number_of(remedy, "--lr", "");
    if (rate > 0)
        ab_text_show(text, size, "%.3g", rate);
    else
        ab_text_show(text, size, "...");
}

/* Checkpoints and logs do not say it. */
static const char *device_of(const ab_facts *facts) {
    const char *device = ab_json_text(facts->document, "config.device", "cuda");
    return strcmp(device, "unknown") == 0 ? "cuda" : device;
}

static void value_of(const char *name, const ab_facts *facts, const ab_remedy *remedy, const char *layer,
                     char *text, size_t size) {
    if (strncmp(name, "{scale}", 7) == 0)
        scale_text(remedy, text, size);
    else if (strncmp(name, "{lr}", 4) == 0)
        rate_text(remedy, text, size);
    else if (strncmp(name, "{device}", 8) == 0)
        ab_text_show(text, size, "%s", device_of(facts));
    else
        ab_text_show(text, size, "%s", layer[0] ? layer : "the layer");
}

static void fill(const char *from, const ab_facts *facts, const ab_remedy *remedy, const char *layer,
                 ab_remedy *to) {
    char value[AB_REMEDY_TEXT];
    while (*from) {
        const size_t plain = strcspn(from, "{");
        ab_text_append(to->text, sizeof to->text, "%.*s", (int)plain, from);
        from += plain;
        if (!*from) return;
        value_of(from, facts, remedy, layer, value, sizeof value);
        ab_text_append(to->text, sizeof to->text, "%s", value);
        from = strchr(from, '}') + 1;
    }
}

void ab_remedy_for_framework(const ab_facts *facts, const char *id, const char *layer, ab_remedy *remedy) {
    const char *text = text_of(id);
    if (!text || (strcmp(ab_json_text(facts->document, "probe.framework", ""), "torch") != 0 &&
                  !ab_json_at(facts->document, "checkpoint"))) /* their layouts are all PyTorch's */
        return;
    ab_remedy words = {.options = 0};
    fill(text, facts, remedy, layer, &words);
    *remedy = words;
}
