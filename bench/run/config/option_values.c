/* Texts of options as checked values. */
#define _GNU_SOURCE
#include "bench/run/config/option_values.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

ab_status ab_option_integer(const ab_options *options, ab_option_id id, int64_t low, int64_t high,
                            int64_t *value) {
    const char *text = options->text[id];
    if (!text) return AB_OK;
    char *end, name[AB_OPTION_NAME];
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno || parsed < low || parsed > high)
        return ab_fail(AB_USAGE, "%s: expected an integer from %lld to %lld, found '%s'",
                       ab_option_name(id, name), (long long)low, (long long)high, text);
    *value = parsed;
    return AB_OK;
}

ab_status ab_option_real(const ab_options *options, ab_option_id id, double low, double high, double *value) {
    const char *text = options->text[id];
    if (!text) return AB_OK;
    char *end, name[AB_OPTION_NAME];
    double parsed = ab_number_read(text, &end);
    if (end == text || *end != '\0' || !(parsed >= low) || !(parsed <= high))
        return ab_fail(AB_USAGE, "%s: expected a number from %.9g to %.9g, found '%s'",
                       ab_option_name(id, name), low, high, text);
    *value = parsed;
    return AB_OK;
}

/* "3%" or "0.03"; 0 to 1. */
ab_status ab_option_share(const ab_options *options, ab_option_id id, double *share) {
    const char *text = options->text[id];
    char *end, name[AB_OPTION_NAME];
    double parsed = ab_number_read(text, &end);
    bool percent = strcmp(end, "%") == 0;
    if (percent) parsed /= 100;
    if (end == text || (*end != '\0' && !percent) || !(parsed >= 0) || !(parsed <= 1))
        return ab_fail(AB_USAGE, "%s: expected a share such as 3%% or 0.03, at most 1, found '%s'",
                       ab_option_name(id, name), text);
    *share = parsed;
    return AB_OK;
}

/* "512MiB", "2GB", "1.5GiB" or bytes. */
ab_status ab_option_bytes(const ab_options *options, ab_option_id id, int64_t *bytes) {
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1},         {"B", 1},    {"kB", 1e3},     {"KiB", 0x1p10}, {"MB", 1e6},
                 {"MiB", 0x1p20}, {"GB", 1e9}, {"GiB", 0x1p30}, {"TB", 1e12},    {"TiB", 0x1p40}};
    const char *text = options->text[id];
    char *end, name[AB_OPTION_NAME];
    if (!text) return AB_OK;
    const double number = ab_number_read(text, &end);
    for (size_t i = 0; end != text && i < AB_COUNT_OF(units); i++) {
        double value = number * units[i].bytes;
        if (strcmp(end, units[i].unit) != 0 || !(value >= 1 && value < 0x1p62)) continue;
        *bytes = (int64_t)value;
        return AB_OK;
    }
    return ab_fail(AB_USAGE, "%s: expected bytes such as 512MiB or 2GB, found '%s'", ab_option_name(id, name),
                   text);
}

/* Index of the option's text among `names`. */
ab_status ab_option_choice(const ab_options *options, ab_option_id id, const char *const *names, int count,
                           int *choice) {
    const char *text = options->text[id];
    char name[AB_OPTION_NAME], list[256] = "";
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *choice = i;
            return AB_OK;
        }
        ab_text_append(list, sizeof list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = ab_nearest(text, names, count);
    return ab_fail(AB_USAGE, "%s: expected one of %s, found '%s'%s%s%s", ab_option_name(id, name), list, text,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Calls `take` for each comma-separated item. */
ab_status ab_option_list(const ab_options *options, ab_option_id id, ab_run_config *config,
                         ab_status (*take)(ab_run_config *config, const char *item)) {
    char name[AB_OPTION_NAME];
    const char *text = options->text[id];
    ab_option_name(id, name);
    for (;;) {
        char item[64];
        size_t length = strcspn(text, ",");
        if (length == 0)
            return ab_fail(AB_USAGE, "%s: expected a comma-separated list, found an empty item in '%s'", name,
                           options->text[id]);
        if (length >= sizeof item)
            return ab_fail(AB_USAGE,
                           "%s: item too long: expected at most %d characters, found '%s...' of %zu", name,
                           (int)sizeof item - 1, ab_text_brief(text, 40), length);
        memcpy(item, text, length);
        item[length] = '\0';
        AB_TRY(take(config, item));
        if (text[length] == '\0') return AB_OK;
        text += length + 1;
    }
}
