/* "config" of a document: the checked options of a run, after defaults. */
#define _GNU_SOURCE
#include "bench/run/record.h"

#include "bench/run/config/configure.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/text.h"
#include "probes/probe.h"
#include "reports/record/json.h"

#include <math.h>
#include <string.h>

static void add_lists(cJSON *object, const ab_run_config *config, const ab_options *options) {
    cJSON *levels = cJSON_AddArrayToObject(object, "levels");
    for (int i = 0; i < config->levels; i++)
        cJSON_AddItemToArray(levels, cJSON_CreateString(config->own[i].entry));
    cJSON *scales = cJSON_AddArrayToObject(object, "scales");
    for (int i = 0; i < config->scales; i++) {
        char text[AB_SCALER_TEXT];
        const ab_scale_choice *choice = &config->scale[i];
        cJSON_AddItemToArray(
            scales,
            cJSON_CreateString(choice->preset ? "default" : ab_loss_scale_text(&choice->scale, text)));
    }
    cJSON *halves = cJSON_AddArrayToObject(object, "half");
    for (int i = 0; i < config->halves; i++)
        cJSON_AddItemToArray(halves, cJSON_CreateString(config->half[i]->name));
    cJSON *overrides = cJSON_AddObjectToObject(object, "overrides");
    for (int i = 0; i < options->overrides; i++) {
        char name[64];
        const char *equals = strchr(options->override[i], '=');
        ab_text_show(name, sizeof name, "%.*s", equals ? (int)(equals - options->override[i]) : 0,
                     options->override[i]);
        ab_json_put(overrides, name, cJSON_CreateString(equals ? equals + 1 : ""));
    }
    const char *layers = options->text[AB_OPTION_to];
    if (layers) ab_json_put(overrides, "to", cJSON_CreateString(layers));
}

static void add_optimizer(cJSON *object, const ab_run_config *config) {
    const ab_optimizer_config *optim = &config->optim;
    unsigned knobs = config->optimizer->knobs;
    cJSON_AddStringToObject(object, "optimizer", config->optimizer->name);
    cJSON_AddNumberToObject(object, "lr", optim->lr);
    ab_json_add_known(object, "momentum", optim->momentum, knobs & AB_KNOB_MOMENTUM);
    ab_json_add_known(object, "dampening", optim->dampening, knobs & AB_KNOB_DAMPENING);
    cJSON_AddNumberToObject(object, "weight_decay", optim->weight_decay);
    cJSON_AddStringToObject(object, "weight_decay_kind", ab_optimizer_decay_name(config->optimizer, optim));
    cJSON_AddBoolToObject(object, "nesterov", strcmp(config->optimizer->name, "nesterov") == 0);
    cJSON *keys = cJSON_AddObjectToObject(object, "optimizer_keys");
    for (int i = 0; i < config->optimizer->keys; i++) {
        char text[AB_OPTIMIZER_VALUE];
        cJSON_AddStringToObject(keys, config->optimizer->key[i].name,
                                ab_optimizer_value_text(config->optimizer, optim, i, text));
    }
    ab_json_add_known(object, "beta1", optim->beta1, knobs & AB_KNOB_BETA1);
    ab_json_add_known(object, "beta2", optim->beta2, knobs & AB_KNOB_BETA2);
    ab_json_add_known(object, "alpha", optim->alpha, knobs & AB_KNOB_ALPHA);
    ab_json_add_known(object, "eps", optim->eps, knobs & AB_KNOB_EPS);
    ab_json_add_known(object, "lr_decay", optim->lr_decay, knobs & AB_KNOB_LR_DECAY);
    ab_json_add_known(object, "trust_coefficient", optim->trust_coefficient,
                      knobs & AB_KNOB_TRUST_COEFFICIENT);
}

static void add_groups(cJSON *object, const ab_param_groups *groups) {
    cJSON *list = cJSON_AddArrayToObject(object, "param_groups");
    for (int i = 0; i < groups->count; i++) {
        const ab_param_group *group = &groups->group[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "pattern", group->pattern);
        cJSON_AddNumberToObject(item, "lr_factor", group->lr_factor);
        ab_json_add_known(item, "weight_decay", group->weight_decay, group->weight_decay >= 0);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_ranks(cJSON *object, const ab_rank_recipe *ranks, bool nccl) {
    char text[AB_REDUCTION_TEXT];
    const char *library = ab_rank_place_get().library;
    cJSON_AddNumberToObject(object, "ranks", (double)ranks->count);
    if (library) cJSON_AddStringToObject(object, "mpi", library);
    if (nccl) cJSON_AddBoolToObject(object, "nccl", true);
    if (ranks->count < 2) return;
    cJSON *item = cJSON_AddObjectToObject(object, "reduction");
    cJSON_AddStringToObject(item, "reduce", ab_reduction_scheme_text(&ranks->reduction, text));
    cJSON_AddStringToObject(item, "wire", ranks->reduction.wire ? ranks->reduction.wire->name : "as-is");
    cJSON_AddStringToObject(item, "divide", ab_reduction_divide_text(&ranks->reduction, text));
    cJSON_AddNumberToObject(item, "bucket_bytes", ranks->bucket_bytes);
    cJSON_AddStringToObject(item, "every", ab_reduction_every_text(ranks->every));
    if (ranks->sync_bn)
        cJSON_AddStringToObject(item, "sync_bn", ranks->sync_bn == AB_SYNC_APEX ? "apex" : "torch");
}

static void add_recipe(cJSON *object, const ab_run_config *config, const ab_options *options) {
    const ab_recipe *recipe = &config->recipe;
    cJSON_AddStringToObject(object, "schedule", options->text[AB_OPTION_schedule]);
    cJSON_AddNumberToObject(object, "schedule_total", (double)recipe->rates.total);
    cJSON_AddBoolToObject(object, "schedule_on_skip", recipe->schedule_on_skip);
    ab_json_add_known(object, "clip_norm", recipe->clip.norm, recipe->clip.norm > 0);
    ab_json_add_known(object, "clip_value", recipe->clip.value, recipe->clip.value > 0);
    cJSON_AddNumberToObject(object, "gradient_accumulation_steps", (double)recipe->micro_batches);
    add_ranks(object, &recipe->ranks, ab_ranks_use_gpus(options));
    ab_json_add_known(object, "ema", recipe->ema_decay, recipe->ema_decay > 0);
    cJSON_AddStringToObject(object, "ema_format", options->text[AB_OPTION_ema_format]);
    cJSON_AddStringToObject(object, "clip_norm_format", options->text[AB_OPTION_clip_norm_format]);
    cJSON_AddStringToObject(object, "optimizer_rounding", options->text[AB_OPTION_optimizer_rounding]);
    cJSON_AddStringToObject(object, "optimizer_state", options->text[AB_OPTION_optimizer_state]);
    add_groups(object, &recipe->groups);
    cJSON *faults = cJSON_AddArrayToObject(object, "faults");
    for (int i = 0; i < AB_FAULT_COUNT; i++)
        if (recipe->faults >> i & 1u) cJSON_AddItemToArray(faults, cJSON_CreateString(ab_fault_name(i)));
}

static void add_probes(cJSON *object, const ab_run_config *config) {
    cJSON *names = cJSON_AddArrayToObject(object, "probes");
    for (int i = 0; i < ab_probe_count(); i++)
        if (config->probes >> i & 1u) cJSON_AddItemToArray(names, cJSON_CreateString(ab_probe_at(i)->name));
    cJSON_AddNumberToObject(object, "probe_every", (double)config->probe_every);
    ab_json_add_known(object, "probe_budget", config->probe_budget, config->probe_budget > 0);
}

/* The default of --scales dynamic for a key. */
static double apex_default(const char *key) {
    const ab_scaler_kind *apex;
    if (ab_scaler_find("apex", &apex) != AB_OK) return 0;
    return ab_scaler_defaults(apex).value[ab_scaler_key_index(apex, key)];
}

double ab_record_scale_window(const ab_run_config *config) {
    return config->scale_window != 0 ? (double)config->scale_window : apex_default("window");
}

cJSON *ab_record_config(const ab_run_config *config, const ab_options *options) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "net", config->net->name);
    cJSON_AddStringToObject(object, "net_path", config->net->path);
    cJSON_AddStringToObject(object, "net_digest", config->net->digest);
    cJSON_AddStringToObject(object, "data", config->data_name);
    add_lists(object, config, options);
    cJSON_AddStringToObject(object, "device", config->device->name);
    cJSON_AddNumberToObject(object, "batch", (double)config->batch);
    cJSON_AddNumberToObject(object, "steps", (double)config->steps);
    ab_json_add_known(object, "epochs", (double)config->epochs, config->epochs > 0);
    add_optimizer(object, config);
    add_recipe(object, config, options);
    cJSON_AddNumberToObject(object, "seed", (double)config->seed);
    cJSON_AddNumberToObject(object, "seeds", (double)config->seeds);
    cJSON_AddNumberToObject(object, "threads", config->threads);
    cJSON_AddStringToObject(object, "order", options->text[AB_OPTION_order]);
    cJSON_AddStringToObject(object, "normalize", options->text[AB_OPTION_normalize]);
    if (options->text[AB_OPTION_pad]) cJSON_AddStringToObject(object, "pad", options->text[AB_OPTION_pad]);
    cJSON_AddNumberToObject(object, "rounds", (double)config->rounds);
    ab_json_add_known(object, "timed_steps", (double)config->timed_steps,
                      config->timed_steps != AB_TIMED_STEPS_AUTO);
    add_probes(object, config);
    cJSON_AddStringToObject(object, "accumulate", options->text[AB_OPTION_accumulate]);
    cJSON_AddStringToObject(object, "cpu_path", options->text[AB_OPTION_cpu_path]);
    cJSON_AddBoolToObject(object, "flush_denormal", config->flush_denormal);
    ab_json_add_text(object, "init", config->init_file);
    ab_json_add_text(object, "init_map", config->init_map);
    ab_json_add_text(object, "resume_from", config->resume_file);
    cJSON_AddNumberToObject(object, "first_step", (double)config->first_step);
    cJSON_AddNumberToObject(object, "checkpoint_every", (double)config->checkpoint_every);
    ab_json_add_known(object, "min_loss_scale", config->min_loss_scale, config->min_loss_scale != 0);
    ab_json_add_number(object, "max_loss_scale",
                       config->max_loss_scale != 0 ? config->max_loss_scale : apex_default("max"));
    ab_json_add_number(object, "scale_window", ab_record_scale_window(config));
    cJSON_AddNumberToObject(object, "eval_limit", (double)ab_run_eval_limit(config));
    cJSON_AddBoolToObject(object, "noise_floor", config->floor_draws > 0);
    cJSON_AddNumberToObject(object, "floor_draws", config->floor_draws);
    return object;
}
