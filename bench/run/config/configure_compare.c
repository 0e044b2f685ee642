/* What to compare, and dynamic loss scales: --levels, --set, --to, --scales, --half, --accumulate and the
 * limits of scalers. */
#define _GNU_SOURCE
#include "bench/run/config/configure_parts.h"

#include "bench/amp/layer_formats.h"
#include "bench/run/config/option_values.h"
#include "kernels/core/power_range.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

static ab_status list_full(const char *name, int most) {
    return ab_fail(AB_USAGE, "%s: at most %d items", name, most);
}

/* "loss_scale=128", which belongs to the entry before it. */
static ab_status extend_entry(ab_run_config *config, const char *item) {
    if (config->levels == 0)
        return ab_fail(AB_USAGE, "--levels: expected a level before '%s', e.g. O2:%s", item, item);
    char **entry = &config->own[config->levels - 1].entry;
    const char *rest;
    char *longer = ab_text_new("%s%c%s", *entry, ab_level_named(*entry, &rest) ? ',' : ':', item);
    if (!longer) return ab_fail(AB_NO_MEMORY, "--levels: out of memory");
    free(*entry);
    *entry = longer;
    return AB_OK;
}

/* "O2", "O2:keep_batchnorm_fp32=False"; "master_weights=False" after the latter's comma belongs to it. */
static ab_status take_level(ab_run_config *config, const char *item) {
    const char *rest;
    const ab_level *level = ab_level_named(item, &rest);
    if (!level && strchr(item, '=') && !strchr(item, ':')) return extend_entry(config, item);
    if (config->levels == AB_MAX_LIST) return list_full("--levels", AB_MAX_LIST);
    if (!level) AB_TRY(ab_level_find(item, &level));
    for (int i = 0; i < config->levels; i++)
        if (strcmp(config->own[i].entry, item) == 0)
            return ab_fail(AB_USAGE, "--levels: duplicate level %s", item);
    char *entry = ab_text_new("%s", item);
    if (!entry) return ab_fail(AB_NO_MEMORY, "--levels: out of memory");
    config->own[config->levels].entry = entry;
    config->level[config->levels++] = level;
    return AB_OK;
}

/* Distributes --set and --to to the levels. */
static ab_status take_level_options(const ab_options *options, ab_run_config *config) {
    AB_TRY(ab_level_options_select(options, NULL, &config->unnamed));
    for (int l = 0; l < config->levels; l++) {
        AB_TRY(ab_level_options_split(&config->own[l]));
        AB_TRY(ab_level_options_select(options, config->level[l], &config->own[l]));
    }
    return AB_OK;
}

/* Room for one more scale, without a text; NULL: out of memory. */
static ab_scale_choice *new_scale(ab_run_config *config) {
    ab_scale_choice *more = realloc(config->scale, ((size_t)config->scales + 1) * sizeof *more);
    if (!more) return NULL;
    config->scale = more;
    more[config->scales] = (ab_scale_choice){.preset = false};
    return &more[config->scales++];
}

/* "torch", "deepspeed:init=65536"; "window=500" after the latter's comma belongs to it. */
static ab_status take_one_scale(ab_run_config *config, const char *item) {
    bool more = strchr(item, '=') && !strchr(item, ':');
    if (more && config->scales == 0)
        return ab_fail(AB_USAGE, "--scales: expected a dialect before '%s', e.g. torch:%s", item, item);
    if (!more && config->scales == AB_MAX_SCALES) return list_full("--scales", AB_MAX_SCALES);
    ab_scale_choice *choice = more ? &config->scale[config->scales - 1] : new_scale(config);
    if (!choice) return ab_fail(AB_NO_MEMORY, "--scales: out of memory");
    const char *separator = !more ? "" : strchr(choice->text, ':') ? "," : ":";
    char *text = ab_text_new("%s%s%s", more ? choice->text : "", separator, item);
    if (!text) return ab_fail(AB_NO_MEMORY, "--scales: out of memory");
    free(choice->text);
    choice->text = text;
    choice->preset = strcmp(choice->text, "default") == 0;
    if (choice->preset) return AB_OK;
    return ab_loss_scale_parse("--scales", choice->text, &choice->scale);
}

/* One scale, or a range of powers: 2^0..2^24, 2^0..2^24:4, 2^0..2^24:skip. */
static ab_status take_scale(ab_run_config *config, const char *item) {
    char power[AB_POWER_RANGE_ITEM], one[AB_POWER_RANGE_ITEM + sizeof ":skip"];
    ab_power_range range;
    if (!ab_power_range_is(item)) return take_one_scale(config, item);
    const char *rest = ab_power_range_parse(item, &range);
    if (!rest || (rest[0] && strcmp(rest, ":skip") != 0))
        return ab_fail(AB_USAGE,
                       "--scales: expected a range of powers such as 2^0..2^24, 2^0..2^24:4 (every fourth "
                       "power) or 2^0..2^24:skip, the lower one first, found '%s'",
                       item);
    if (range.count > AB_MAX_SCALES - config->scales) return list_full("--scales", AB_MAX_SCALES);
    for (int i = 0; i < range.count; i++)
        AB_TRY(take_one_scale(
            config, ab_text_exact(one, sizeof one, "%s%s", ab_power_range_item(&range, i, power), rest)));
    return AB_OK;
}

static ab_status take_half(ab_run_config *config, const char *item) {
    static const char *const names[] = {"fp16", "bf16"};
    if (config->halves == AB_MAX_LIST) return list_full("--half", AB_MAX_LIST);
    const ab_format *format = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++)
        if (strcmp(item, names[i]) == 0) AB_TRY(ab_format_find(item, &format));
    if (!format) return ab_fail(AB_USAGE, "--half: expected fp16 or bf16, found '%s'", item);
    for (int i = 0; i < config->halves; i++)
        if (config->half[i] == format) return ab_fail(AB_USAGE, "--half: duplicate format %s", item);
    config->half[config->halves++] = format;
    return AB_OK;
}

static ab_status take_scaler_limits(const ab_options *options, ab_run_config *config) {
    AB_TRY(ab_option_real(options, AB_OPTION_min_loss_scale, 0x1p-126, 0x1p127, &config->min_loss_scale));
    AB_TRY(ab_option_real(options, AB_OPTION_max_loss_scale, 0x1p-126, 0x1p127, &config->max_loss_scale));
    bool both = config->min_loss_scale > 0 && config->max_loss_scale > 0;
    if (both && config->min_loss_scale > config->max_loss_scale)
        return ab_fail(AB_USAGE, "--min-loss-scale %.9g is above --max-loss-scale %.9g",
                       config->min_loss_scale, config->max_loss_scale);
    return ab_option_integer(options, AB_OPTION_scale_window, 1, INT64_MAX, &config->scale_window);
}

ab_status ab_configure_layers(const ab_run_config *config) {
    ab_layer_format *own = calloc((size_t)config->net->ops + 1, sizeof *own);
    ab_status status = own ? AB_OK : ab_fail(AB_NO_MEMORY, "--to: out of memory");
    for (int h = 0; h < config->halves && status == AB_OK; h++) {
        status = ab_layer_formats(config->unnamed.layers, config->net, config->half[h], own);
        for (int l = 0; l < config->levels && status == AB_OK; l++)
            status = ab_layer_formats(config->own[l].layers, config->net, config->half[h], own);
    }
    free(own);
    return status;
}

ab_status ab_configure_compare(const ab_options *options, ab_run_config *config) {
    static const char *const accumulators[] = {"fp32", "half"};
    int choice = 0;
    AB_TRY(ab_option_list(options, AB_OPTION_levels, config, take_level));
    AB_TRY(take_level_options(options, config));
    AB_TRY(ab_option_list(options, AB_OPTION_scales, config, take_scale));
    AB_TRY(ab_option_list(options, AB_OPTION_half, config, take_half));
    AB_TRY(ab_option_choice(options, AB_OPTION_accumulate, accumulators, 2, &choice));
    config->accumulate_half = choice == 1;
    return take_scaler_limits(options, config);
}
