/* Presets, overrides and their rules. Each property has one setter, which checks at which levels it may be
 * given. */
#include "bench/amp/policy.h"

#include "kernels/core/number.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AB_WEIGHTS_model, AB_WEIGHTS_read };

static const ab_level levels[] = {
#define AB_LEVEL(id, name, cast, patch, keep, master, scale, list, weights, origin, text)                    \
    {name,                                                                                                   \
     AB_CAST_##cast,                                                                                         \
     AB_TRI_##patch,                                                                                         \
     AB_TRI_##keep,                                                                                          \
     AB_TRI_##master,                                                                                        \
     scale,                                                                                                  \
     AB_LIST_##list,                                                                                         \
     AB_WEIGHTS_##weights == AB_WEIGHTS_read,                                                                \
     origin,                                                                                                 \
     text},
#include "bench/amp/levels.def"
#undef AB_LEVEL
};

int ab_level_count(void) { return (int)AB_COUNT_OF(levels); }
const ab_level *ab_level_at(int i) { return &levels[i]; }

ab_status ab_level_find(const char *name, const ab_level **level) {
    const char *names[AB_COUNT_OF(levels)];
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        names[i] = levels[i].name;
        if (strcmp(name, levels[i].name) != 0) continue;
        *level = &levels[i];
        return AB_OK;
    }
    size_t length = strlen(name);
    char last = length ? name[length - 1] : '\0';
    bool zero_for_letter =
        (length == 1 || (length == 2 && (name[0] == '0' || name[0] == 'o'))) && last >= '0' && last <= '3';
    if (zero_for_letter)
        return ab_fail(AB_USAGE, "--levels: unknown level '%s'; the first character is the %s O%s: 'O%c'",
                       name, name[0] == 'o' ? "capital letter" : "letter",
                       name[0] == 'o' ? "" : ", not a digit", last);
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(AB_USAGE,
                   "--levels: expected O0, O1, O2 or O3, found '%s'%s%s%s (see `ampbench list levels`)", name,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bool ab_level_is_reference(const ab_level *level) { return strcmp(level->name, "O0") == 0; }

const ab_level *ab_level_named(const char *item, const char **rest) {
    const ab_level *found = NULL;
    *rest = item;
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        const size_t length = strlen(levels[i].name);
        if (strncmp(item, levels[i].name, length) != 0 || item[length] != ':') continue;
        found = &levels[i];
        *rest = item + length + 1;
    }
    return found;
}

/* "dynamic" means apex's scaler. */
/* The numbers, words and loss scalers that a loss scale can be. */
static ab_status unknown_scale(const char *what, const char *name, const char *text) {
    enum { MOST = 32 };
    const char *names[MOST];
    char list[512] = "";
    int count = 0;
    for (int i = 0; i < ab_scaler_count() && count < MOST; i++) {
        names[count] = ab_scaler_at(i)->name;
        ab_text_append(list, sizeof list, "%s%s", count ? ", " : "", names[count]);
        count++;
    }
    const char *near = ab_nearest(name, names, count);
    return ab_fail(AB_USAGE,
                   "%s: expected default, dynamic, a number such as 128 or 2^7, or a loss scaler (%s), found "
                   "'%s'%s%s%s",
                   what, list, ab_text_brief(text, 80), near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

static ab_status parse_dialect(const char *what, const char *text, ab_loss_scale *scale) {
    char name[32];
    size_t length = strcspn(text, ":");
    const ab_scaler_kind *kind = NULL;
    ab_text_show(name, sizeof name, "%.*s", (int)length, text);
    if (ab_scaler_find(strcmp(name, "dynamic") == 0 ? "apex" : name, &kind) != AB_OK)
        return unknown_scale(what, name, text);
    *scale = (ab_loss_scale){.dynamic = true};
    const char *keys = text[length] ? text + length + 1 : NULL;
    if (ab_scaler_parse_keys(kind, keys, &scale->scaler) == AB_OK) return AB_OK;
    return ab_fail_prefix(AB_USAGE, "%s", what);
}

static const char skip_suffix[] = ":skip";

ab_loss_scale ab_loss_scale_fixed(double value) {
    extern const ab_scaler_kind ab_scaler_fixed;
    ab_loss_scale scale = {.value = value, .scaler = ab_scaler_defaults(&ab_scaler_fixed)};
    scale.scaler.value[ab_scaler_key_index(&ab_scaler_fixed, "init")] = value;
    return scale;
}

/* A fixed scale whose overflowed steps are skipped. */
static ab_loss_scale skipping(double value) {
    extern const ab_scaler_kind ab_scaler_fixed_skip;
    ab_loss_scale scale = {.dynamic = true, .scaler = ab_scaler_defaults(&ab_scaler_fixed_skip)};
    const int init = ab_scaler_key_index(&ab_scaler_fixed_skip, "init");
    scale.scaler.value[init] = value;
    scale.scaler.given = 1u << init;
    return scale;
}

/* "128", or "128:skip". */
static ab_status parse_fixed(const char *what, const char *text, ab_loss_scale *scale) {
    char *end;
    const double value = ab_number_read(text, &end);
    const bool skips = strcmp(end, skip_suffix) == 0;
    if (end == text || (*end != '\0' && !skips))
        return ab_fail(AB_USAGE, "%s: expected default, dynamic or a number such as 128 or 2^7, found '%s'",
                       what, text);
    if (!(value > 0) || value > (double)FLT_MAX || !((float)value > 0.0f))
        return ab_fail(AB_USAGE,
                       "%s: expected a loss scale above 0 and at most %.8g (what fp32 holds), found '%s'",
                       what, (double)FLT_MAX, text);
    *scale = skips ? skipping(value) : ab_loss_scale_fixed(value);
    return AB_OK;
}

ab_status ab_loss_scale_parse(const char *what, const char *text, ab_loss_scale *scale) {
    char *end;
    (void)ab_number_read(text, &end);
    bool word = end == text && isalpha((unsigned char)text[0]);
    return word ? parse_dialect(what, text, scale) : parse_fixed(what, text, scale);
}

/* At least 9 digits, and as many as needed to read the same number back. */
static void fixed_text(double value, char *text) {
    for (int digits = 9; digits <= 17; digits++)
        if (strtod(ab_text_exact(text, AB_SCALER_TEXT, "%.*g", digits, value), NULL) == value) break;
}

static void skipping_text(double value, char *text) {
    fixed_text(value, text);
    ab_text_append(text, AB_SCALER_TEXT, "%s", skip_suffix);
}

const char *ab_loss_scale_text(const ab_loss_scale *scale, char *text) {
    extern const ab_scaler_kind ab_scaler_fixed_skip;
    if (!scale->dynamic)
        fixed_text(scale->value, text);
    else if (scale->scaler.kind == &ab_scaler_fixed_skip)
        skipping_text(scale->scaler.value[0], text);
    else if (scale->scaler.given == 0 && strcmp(scale->scaler.kind->name, "apex") == 0)
        ab_text_exact(text, AB_SCALER_TEXT, "dynamic");
    else
        ab_scaler_text(&scale->scaler, text);
    return text;
}

const char *ab_tristate_text(ab_tristate value) {
    static const char *const texts[] = {"None", "False", "True"};
    return texts[value];
}

static ab_status parse_bool(const ab_policy *policy, const char *property, const char *text, bool *value) {
    if (strcmp(text, "True") == 0 || strcmp(text, "true") == 0)
        *value = true;
    else if (strcmp(text, "False") == 0 || strcmp(text, "false") == 0)
        *value = false;
    else
        return ab_fail(AB_USAGE, "%s %s: expected True, False or None, found '%s'", policy->option, property,
                       text);
    return AB_OK;
}

/* "fp32", "half", "torch.float16", ...: the half format is that of --half. */
static ab_status parse_cast(const ab_policy *policy, const char *property, const char *value,
                            ab_cast_model *cast) {
    static const char *const fp32_names[] = {"fp32", "float32", "torch.float32"};
    static const char *const half_names[] = {"half", "fp16",     "float16",       "torch.float16",
                                             "bf16", "bfloat16", "torch.bfloat16"};
    *cast = AB_CAST_none;
    bool known = strcmp(value, "False") == 0;
    for (size_t i = 0; i < AB_COUNT_OF(fp32_names); i++)
        if (strcmp(value, fp32_names[i]) == 0) *cast = AB_CAST_fp32;
    for (size_t i = 0; i < AB_COUNT_OF(half_names); i++)
        if (strcmp(value, half_names[i]) == 0) *cast = AB_CAST_half;
    if (*cast == AB_CAST_none && !known)
        return ab_fail(AB_USAGE, "%s %s: expected fp32, half, fp16, bf16 or False, found '%s'",
                       policy->option, property, value);
    if (*cast != AB_CAST_half || strcmp(value, "half") == 0) return AB_OK;
    const ab_format *format;
    const char *dot = strrchr(value, '.');
    AB_TRY(ab_format_find(dot ? dot + 1 : value, &format));
    if (format == policy->half) return AB_OK;
    return ab_fail(AB_USAGE, "%s %s=%s contradicts --half %s; choose the format with --half", policy->option,
                   property, value, policy->half->name);
}

static ab_status set_cast_model_type(ab_policy *policy, const char *value) {
    ab_cast_model cast;
    AB_TRY(parse_cast(policy, "cast_model_type", value, &cast));
    if (policy->patch_torch_functions && cast == AB_CAST_half)
        return ab_fail(
            AB_USAGE,
            "%s cast_model_type=%s: %s casts around functions and keeps the weights in fp32; use O2 or "
            "O3 to cast the model",
            policy->option, value, policy->level);
    policy->cast_model_type = cast;
    return AB_OK;
}

/* O1 and torch's autocast, regardless of overrides. */
static bool casts_functions(const ab_policy *policy) {
    return policy->list != AB_LIST_none && policy->list != AB_LIST_mindspore;
}

static ab_status set_patch_torch_functions(ab_policy *policy, const char *value) {
    bool patch;
    AB_TRY(parse_bool(policy, "patch_torch_functions", value, &patch));
    if (patch && !casts_functions(policy))
        return ab_fail(
            AB_USAGE,
            "%s patch_torch_functions=True: only level O1 casts around functions, found level %s; choose "
            "--levels O1",
            policy->option, policy->level);
    policy->patch_torch_functions = patch;
    return AB_OK;
}

static ab_status set_keep_batchnorm_fp32(ab_policy *policy, const char *value) {
    if (casts_functions(policy))
        return ab_fail(
            AB_USAGE,
            "%s keep_batchnorm_fp32=%s: at %s batch norm follows its input and its parameters stay fp32; "
            "leave it None, or use O2",
            policy->option, value, policy->level);
    bool keep;
    AB_TRY(parse_bool(policy, "keep_batchnorm_fp32", value, &keep));
    policy->keep_batchnorm_fp32 = keep ? AB_TRI_true : AB_TRI_false;
    return AB_OK;
}

static ab_status set_master_weights(ab_policy *policy, const char *value) {
    if (casts_functions(policy) || policy->weights_read_as_half)
        return ab_fail(
            AB_USAGE,
            "%s master_weights=%s: at %s the weights are fp32 already, so masters mean nothing; leave it "
            "None, or use O2",
            policy->option, value, policy->level);
    bool master;
    AB_TRY(parse_bool(policy, "master_weights", value, &master));
    policy->master_weights = master ? AB_TRI_true : AB_TRI_false;
    return AB_OK;
}

static ab_status set_loss_scale(ab_policy *policy, const char *value) {
    char name[48];
    ab_text_show(name, sizeof name, "%s loss_scale", policy->option);
    return ab_loss_scale_parse(name, value, &policy->loss_scale);
}

/* Format of the model's outputs; at levels that cast the model, None means fp32. */
static ab_status set_cast_model_outputs(ab_policy *policy, const char *value) {
    return parse_cast(policy, "cast_model_outputs", value, &policy->cast_model_outputs);
}

/* One scaler per loss exists in apex only: other frameworks divide all gradients by one scale. */
static ab_status set_num_losses(ab_policy *policy, const char *value) {
    char *end;
    const long number = strtol(value, &end, 10);
    if (end == value || *end != '\0' || number < 1 || number > AB_POLICY_LOSSES)
        return ab_fail(
            AB_USAGE, "%s num_losses: expected a number of loss scalers from 1 to %d, found '%s'%s",
            policy->option, (int)AB_POLICY_LOSSES, value,
            number < 1 && end != value ? " (apex: scale_loss raises IndexError: list index out of range)"
                                       : "");
    if (number > 1 && strchr(policy->level, ':'))
        return ab_fail(AB_USAGE,
                       "%s num_losses=%s: a scaler per loss is apex's; %s divides all gradients by one "
                       "scale; use O1 or O2",
                       policy->option, value, policy->level);
    policy->num_losses = (int)number;
    return AB_OK;
}

/* As parse_cast, of a property that always has a format. */
static ab_status parse_format(const ab_policy *policy, const char *name, const char *value,
                              ab_cast_model *format) {
    AB_TRY(parse_cast(policy, name, value, format));
    if (*format != AB_CAST_none) return AB_OK;
    return ab_fail(AB_USAGE, "%s %s: expected half, %s or fp32, found '%s'", policy->option, name,
                   policy->half->name, value);
}

/* A separate format for running mean and variance. */
static ab_status set_batch_norm_statistics(ab_policy *policy, const char *value) {
    return parse_format(policy, "batch_norm_statistics", value, &policy->batch_norm_statistics);
}

/* A format of kept state: `weights` (optimizer state only), fp32 or half. */
static ab_status set_optimizer_state(ab_policy *policy, const char *value) {
    ab_cast_model format = AB_CAST_none;
    if (strcmp(value, "weights") != 0) AB_TRY(parse_cast(policy, "optimizer_state", value, &format));
    policy->keep.state_format = format == AB_CAST_none   ? NULL
                                : format == AB_CAST_fp32 ? &ab_format_fp32
                                                         : policy->half;
    policy->keep.state_set = true;
    return AB_OK;
}

static ab_status set_ema_format(ab_policy *policy, const char *value) {
    ab_cast_model format;
    AB_TRY(parse_format(policy, "ema_format", value, &format));
    policy->keep.ema_format = format == AB_CAST_fp32 ? &ab_format_fp32 : policy->half;
    policy->keep.ema_set = true;
    return AB_OK;
}

/* What masters start from: `model`, the half weights as in apex, or the fp32 numbers they were rounded from.
 */
static ab_status set_masters_from(ab_policy *policy, const char *value) {
    policy->keep.fp32_masters = strcmp(value, "fp32") == 0;
    if (policy->keep.fp32_masters || strcmp(value, "model") == 0) return AB_OK;
    return ab_fail(AB_USAGE, "%s masters_from: expected model or fp32, found '%s'", policy->option, value);
}

static ab_status set_math(ab_policy *policy, const char *value) {
    policy->tf32 = strcmp(value, "tf32") == 0;
    policy->tf32_set = true;
    if (policy->tf32 || strcmp(value, "ieee") == 0) return AB_OK;
    return ab_fail(AB_USAGE, "%s math: expected ieee or tf32, found '%s'", policy->option, value);
}

static ab_status set_enabled(ab_policy *policy, const char *value) {
    return parse_bool(policy, "enabled", value, &policy->enabled);
}

/* apex prints from 1 on; its 2 lists every cast of a function, which `ampbench plan` does. */
static ab_status set_verbosity(ab_policy *policy, const char *value) {
    const bool known = strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
    if (!known)
        return ab_fail(AB_USAGE,
                       "%s verbosity: expected 0 (silent) or 1 (what apex prints), found '%s'; `ampbench "
                       "plan` lists the casts",
                       policy->option, value);
    policy->verbosity = value[0] - '0';
    if (policy->verbosity == 0 || !strchr(policy->level, ':')) return AB_OK;
    return ab_fail(AB_USAGE,
                   "%s verbosity=1: apex's lines are for apex's levels, found %s; name the level: "
                   "--set O2:verbosity=1",
                   policy->option, policy->level);
}

/* ---- values as text: what the setter would take; NULL: None -------------------------------------- */

static const char *tristate_or_none(ab_tristate value) {
    return value == AB_TRI_none ? NULL : ab_tristate_text(value);
}

static const char *cast_text(const ab_policy *policy, ab_cast_model cast) {
    if (cast == AB_CAST_none) return NULL;
    return cast == AB_CAST_fp32 ? "fp32" : policy->half->name;
}

static const char *bool_text(bool value) { return value ? "True" : "False"; }

const char *ab_policy_cast_text(const ab_policy *policy) {
    return cast_text(policy, policy->cast_model_type);
}

/* Of a property that was None at the level and is not a format: apex's False. */
static const char *cast_model_type_of(const ab_policy *policy) {
    const char *text = ab_policy_cast_text(policy);
    return text ? text : "False";
}
static const char *patch_torch_functions_of(const ab_policy *policy) {
    return bool_text(policy->patch_torch_functions);
}
static const char *keep_batchnorm_fp32_of(const ab_policy *policy) {
    return tristate_or_none(policy->keep_batchnorm_fp32);
}
static const char *master_weights_of(const ab_policy *policy) {
    return tristate_or_none(policy->master_weights);
}
static const char *cast_model_outputs_of(const ab_policy *policy) {
    return cast_text(policy, policy->cast_model_outputs);
}
static const char *num_losses_of(const ab_policy *policy) {
    static const char *const numbers[AB_POLICY_LOSSES + 1] = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};
    return numbers[policy->num_losses];
}
static const char *batch_norm_statistics_of(const ab_policy *policy) {
    return cast_text(policy, policy->batch_norm_statistics);
}
static const char *optimizer_state_of(const ab_policy *policy) {
    const ab_format *format = policy->keep.state_format;
    return !policy->keep.state_set ? NULL : format ? format->name : "weights";
}
static const char *ema_format_of(const ab_policy *policy) {
    return policy->keep.ema_set ? policy->keep.ema_format->name : NULL;
}
static const char *masters_from_of(const ab_policy *policy) {
    return policy->keep.fp32_masters ? "fp32" : NULL;
}
static const char *math_of(const ab_policy *policy) {
    return !policy->tf32_set ? NULL : policy->tf32 ? "tf32" : "ieee";
}
static const char *enabled_of(const ab_policy *policy) { return bool_text(policy->enabled); }

/* ---- the list of properties -------------------------------------------------------------------- */

typedef struct property {
    const char *name;
    ab_status (*set)(ab_policy *policy, const char *value);
    const char *(*get)(const ab_policy *policy); /* NULL: not part of a label */
} property;

/* loss_scale is a column and a part of the id of its own; verbosity changes no training. */
static const property properties[] = {
    {"cast_model_type", set_cast_model_type, cast_model_type_of},
    {"patch_torch_functions", set_patch_torch_functions, patch_torch_functions_of},
    {"keep_batchnorm_fp32", set_keep_batchnorm_fp32, keep_batchnorm_fp32_of},
    {"master_weights", set_master_weights, master_weights_of},
    {"loss_scale", set_loss_scale, NULL},
    {"cast_model_outputs", set_cast_model_outputs, cast_model_outputs_of},
    {"num_losses", set_num_losses, num_losses_of},
    {"batch_norm_statistics", set_batch_norm_statistics, batch_norm_statistics_of},
    {"optimizer_state", set_optimizer_state, optimizer_state_of},
    {"ema_format", set_ema_format, ema_format_of},
    {"masters_from", set_masters_from, masters_from_of},
    {"math", set_math, math_of},
    {"verbosity", set_verbosity, NULL},
    {"enabled", set_enabled, enabled_of},
};

bool ab_policy_is_property(const char *item) {
    const size_t length = strcspn(item, "=");
    for (size_t i = 0; i < AB_COUNT_OF(properties); i++)
        if (strlen(properties[i].name) == length && strncmp(item, properties[i].name, length) == 0)
            return true;
    return false;
}

/* MindSpore's build_train_network accepts no other keyword. */
static ab_status check_mindspore(const ab_policy *policy, const char *name) {
    static const char *const allowed[] = {"cast_model_type", "keep_batchnorm_fp32", "loss_scale"};
    if (strncmp(policy->level, "mindspore:", 10) != 0) return AB_OK;
    for (size_t i = 0; i < AB_COUNT_OF(allowed); i++)
        if (strcmp(name, allowed[i]) == 0) return AB_OK;
    return ab_fail(AB_USAGE,
                   "%s %s: %s may override only cast_model_type, keep_batchnorm_fp32 and loss_scale (its "
                   "loss_scale_manager); MindSpore raises ValueError for others",
                   policy->option, name, policy->level);
}

static ab_status apply_override(ab_policy *policy, const char *text) {
    const char *equals = strchr(text, '=');
    const char *names[AB_COUNT_OF(properties)];
    char name[64];
    ab_text_show(name, sizeof name, "%.*s", equals ? (int)(equals - text) : (int)strlen(text), text);
    if (!equals) return ab_fail(AB_USAGE, "%s: expected property=value, found '%s'", policy->option, text);
    for (size_t i = 0; i < AB_COUNT_OF(properties); i++) {
        names[i] = properties[i].name;
        if (strcmp(name, properties[i].name) != 0) continue;
        if (strcmp(equals + 1, "None") == 0) return AB_OK;
        AB_TRY(check_mindspore(policy, name));
        return properties[i].set(policy, equals + 1);
    }
    const char *near = ab_nearest(name, names, (int)AB_COUNT_OF(names));
    return ab_fail(
        AB_USAGE,
        "%s: unknown property '%s'%s%s%s (cast_model_type, patch_torch_functions, keep_batchnorm_fp32, "
        "master_weights, loss_scale, cast_model_outputs, num_losses, batch_norm_statistics, optimizer_state, "
        "ema_format, masters_from, math, verbosity, enabled)",
        policy->option, name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* enabled=False leaves model, optimizer and loss as they are: fp32. */
static void disable(ab_policy *policy) {
    policy->cast_model_type = policy->cast_model_outputs = policy->batch_norm_statistics = AB_CAST_none;
    policy->num_losses = 1;
    policy->patch_torch_functions = policy->weights_read_as_half = false;
    policy->keep_batchnorm_fp32 = policy->master_weights = AB_TRI_none;
    policy->loss_scale = ab_loss_scale_fixed(1);
}

static ab_status preset(const ab_level *level, const ab_format *half, ab_policy *policy) {
    *policy = (ab_policy){
        .cast_model_type = level->cast_model_type,
        .patch_torch_functions = level->patch_torch_functions == AB_TRI_true,
        .keep_batchnorm_fp32 = level->keep_batchnorm_fp32,
        .master_weights = level->master_weights,
        .half = half,
        .list = level->list,
        .weights_read_as_half = level->weights_read_as_half,
        .enabled = true,
        .num_losses = 1,
    };
    ab_text_exact(policy->level, sizeof policy->level, "%s", level->name);
    return ab_loss_scale_parse("levels.def", level->loss_scale, &policy->loss_scale);
}

/* "O2", or "O2:keep_batchnorm_fp32=False,master_weights=False": what differs from the level's row. */
static void write_label(const ab_policy *row, ab_policy *policy) {
    char *label = policy->label;
    ab_text_exact(label, AB_POLICY_LABEL, "%s", policy->level);
    char separator = ':';
    for (size_t i = 0; i < AB_COUNT_OF(properties); i++) {
        const property *p = &properties[i];
        const bool shown = p->get && (policy->enabled || p->set == set_enabled);
        const char *own = shown ? p->get(policy) : NULL, *usual = shown ? p->get(row) : NULL;
        if (!own || (usual && strcmp(own, usual) == 0)) continue;
        ab_text_append(label, AB_POLICY_LABEL, "%c%s=%s", separator, p->name, own);
        separator = ',';
    }
}

ab_status ab_policy_resolve_entry(const ab_level *level, const ab_format *half, const char *const *overrides,
                                  int count, const char *const *own, int own_count, ab_policy *policy) {
    ab_policy row;
    AB_TRY(preset(level, half, &row));
    *policy = row;
    policy->option = "--set";
    for (int i = 0; i < count; i++) AB_TRY(apply_override(policy, overrides[i]));
    policy->option = "--levels";
    for (int i = 0; i < own_count; i++) AB_TRY(apply_override(policy, own[i]));
    if (!policy->enabled) disable(policy);
    write_label(&row, policy);
    return AB_OK;
}

ab_status ab_policy_resolve(const ab_level *level, const ab_format *half, const char *const *overrides,
                            int count, ab_policy *policy) {
    return ab_policy_resolve_entry(level, half, overrides, count, NULL, 0, policy);
}
