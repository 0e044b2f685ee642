/* Changes of formats. */
#include "reports/diagnose/remedy/remedy.h"

#include "kernels/core/text.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <string.h>

/* MindSpore's build_train_network accepts few properties; MindSpore and Keras store fp32 weights. */
static bool is_dialect(const ab_facts *facts, const char *prefix) {
    return strncmp(ab_json_text(facts->cell, "level", ""), prefix, strlen(prefix)) == 0;
}

/* The cell's item of --levels without its override of `property` ("master_weights=True"), if it has one. */
static void item_without(const cJSON *cell, const char *property, char *text, size_t size) {
    const char *level = ab_json_text(cell, "level", "O0"), *label = ab_cell_label(cell);
    const size_t name = strcspn(property, "=") + 1;
    char separator = ':';
    ab_text_show(text, size, "%s", level);
    if (strncmp(label, level, strlen(level)) != 0) return;
    for (const char *item = label + strlen(level); *item; item += strcspn(item, ",")) {
        item++;
        if (strncmp(item, property, name) == 0) continue;
        ab_text_append(text, size, "%c%.*s", separator, (int)strcspn(item, ","), item);
        separator = ',';
    }
}

/* --set applies to all levels of a run, and some refuse the property: leaves O0 and this one. */
static void only_this_level(const ab_facts *facts, const char *property, ab_remedy *remedy) {
    char own[AB_REMEDY_TEXT];
    const cJSON *level;
    bool others = false;
    item_without(facts->cell, property, own, sizeof own);
    cJSON_ArrayForEach(level, ab_json_at(facts->document, "config.levels")) {
        const char *name = cJSON_IsString(level) ? level->valuestring : "";
        others = others || (strcmp(name, "O0") != 0 && strcmp(name, own) != 0);
    }
    if (others) ab_remedy_option(remedy, NULL, "--levels", "%s%s", strcmp(own, "O0") == 0 ? "" : "O0,", own);
}

static void set_property(const ab_facts *facts, const char *note, const char *property, ab_remedy *remedy) {
    ab_remedy_option(remedy, note, "--set", "%s", property);
    only_this_level(facts, property, remedy);
}

bool ab_remedy_masters(const ab_facts *facts, ab_remedy *remedy) {
    if (!ab_facts_half_weights(facts) || is_dialect(facts, "mindspore:") || is_dialect(facts, "keras:"))
        return false;
    set_property(facts, "fp32 master weights", "master_weights=True", remedy);
    remedy->with_others = true;
    return true;
}

bool ab_remedy_wide_state(const ab_facts *facts, ab_remedy *remedy) {
    const char *format = ab_json_text(facts->document, "config.optimizer_state", "");
    if (strcmp(format, "fp32") == 0) return false;
    ab_remedy_option(remedy, NULL, "--optimizer-state", "fp32");
    remedy->with_others = true;
    return true;
}

bool ab_remedy_wide_sums(const ab_facts *facts, ab_remedy *remedy) {
    if (!ab_facts_accumulates_in_half(facts)) return false;
    ab_remedy_option(remedy, NULL, "--accumulate", "fp32");
    remedy->with_others = true;
    return true;
}

bool ab_remedy_wide_average(const ab_facts *facts, ab_remedy *remedy) {
    if (strcmp(ab_json_text(facts->document, "config.ema_format", ""), "half") != 0) return false;
    ab_remedy_option(remedy, NULL, "--ema-format", "fp32");
    return true;
}

bool ab_remedy_wide_batch_norm(const ab_facts *facts, ab_remedy *remedy) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    if (strcmp(model, facts->half->name) != 0 || ab_json_is_true(facts->cell, "policy.keep_batchnorm_fp32"))
        return false;
    set_property(facts, NULL, "keep_batchnorm_fp32=True", remedy);
    return true;
}

bool ab_remedy_wide_statistics(const ab_facts *facts, ab_remedy *remedy) {
    if (strcmp(ab_facts_statistics_format(facts), "fp32") == 0) return false;
    if (is_dialect(facts, "mindspore:")) return ab_remedy_wide_batch_norm(facts, remedy);
    set_property(facts, NULL, "batch_norm_statistics=fp32", remedy);
    return true;
}

/* An option of the run names fp16, or one of its scalers is for fp16 only. */
static bool is_for_fp16(const ab_facts *facts) {
    static const char *const of_layers[] = {"=fp16", "=torch.float16"};
    const cJSON *word;
    cJSON_ArrayForEach(word, ab_json_at(facts->document, "run.argv")) {
        for (size_t i = 0; i < sizeof of_layers / sizeof *of_layers; i++)
            if (cJSON_IsString(word) && strstr(word->valuestring, of_layers[i])) return true;
    }
    cJSON_ArrayForEach(word, ab_json_at(facts->document, "config.scales")) {
        if (cJSON_IsString(word) && strncmp(word->valuestring, "adaloss", 7) == 0) return true;
    }
    return false;
}

bool ab_remedy_bf16(const ab_facts *facts, ab_remedy *remedy) {
    if (strcmp(facts->half->name, "fp16") != 0 || ab_facts_accumulates_in_half(facts) || is_for_fp16(facts))
        return false;
    ab_remedy_option(remedy, "fp32's range", "--half", "bf16");
    (void)ab_remedy_masters(facts, remedy);
    remedy->with_others = false;
    return true;
}
