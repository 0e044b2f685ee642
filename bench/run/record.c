/* Builds the document part by part. Keys and shapes are those of reports/schema/result-1.schema.json. */
#define _GNU_SOURCE
#include "bench/run/record.h"

#include "bench/run/digest.h"
#include "bench/run/environment.h"
#include "bench/run/replay.h"
#include "bench/run/worker.h"
#include "bench/timer/timer.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/text.h"
#include "kernels/ops/traits/op_traits.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SKIPPED_KEPT = 4096 };

static void add_text(cJSON *object, const char *key, const char *text) {
    if (text)
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_real(cJSON *object, const char *key, double value, bool known) {
    if (known)
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static void put(cJSON *object, const char *key, cJSON *item) {
    cJSON_DeleteItemFromObjectCaseSensitive(object, key);
    cJSON_AddItemToObject(object, key, item);
}

static cJSON *text_or_null(const char *text) { return text ? cJSON_CreateString(text) : cJSON_CreateNull(); }

static const char *utc_now(char text[32]) {
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

/* ---- head ------------------------------------------------------------------------------------ */

static cJSON *run_part(const ab_options *options, int argc, char *const *argv) {
    cJSON *run = cJSON_CreateObject(), *list;
    char text[32], id[17];
    int64_t now = ab_monotonic_ns();
    ab_digest digest = ab_digest_add(ab_digest_start(), &now, sizeof now);
    utc_now(text);
    digest = ab_digest_add(digest, text, strlen(text));
    cJSON_AddStringToObject(run, "id", ab_digest_text(digest, id));
    cJSON_AddStringToObject(run, "started_utc", text);
    if (options->text[AB_OPTION_label]) cJSON_AddStringToObject(run, "label", options->text[AB_OPTION_label]);
    cJSON_AddNullToObject(run, "finished_utc");
    list = cJSON_AddArrayToObject(run, "argv");
    for (int i = 0; i < argc; i++) cJSON_AddItemToArray(list, cJSON_CreateString(i ? argv[i] : "ampbench"));
    cJSON_AddItemToObject(run, "options", ab_replay_record(options));
    cJSON_AddFalseToObject(run, "complete");
    cJSON_AddNullToObject(run, "exit_status");
    cJSON_AddNumberToObject(run, "elapsed_s", 0);
    return run;
}

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
        put(overrides, name, cJSON_CreateString(equals ? equals + 1 : ""));
    }
    const char *layers = options->text[AB_OPTION_to];
    if (layers) put(overrides, "to", cJSON_CreateString(layers));
}

static void add_optimizer(cJSON *object, const ab_run_config *config) {
    const ab_optimizer_config *optim = &config->optim;
    unsigned knobs = config->optimizer->knobs;
    cJSON_AddStringToObject(object, "optimizer", config->optimizer->name);
    cJSON_AddNumberToObject(object, "lr", optim->lr);
    add_real(object, "momentum", optim->momentum, knobs & AB_KNOB_MOMENTUM);
    add_real(object, "dampening", optim->dampening, knobs & AB_KNOB_DAMPENING);
    cJSON_AddNumberToObject(object, "weight_decay", optim->weight_decay);
    cJSON_AddStringToObject(object, "weight_decay_kind", ab_optimizer_decay_name(config->optimizer, optim));
    cJSON_AddBoolToObject(object, "nesterov", strcmp(config->optimizer->name, "nesterov") == 0);
    cJSON *keys = cJSON_AddObjectToObject(object, "optimizer_keys");
    for (int i = 0; i < config->optimizer->keys; i++) {
        char text[AB_OPTIMIZER_VALUE];
        cJSON_AddStringToObject(keys, config->optimizer->key[i].name,
                                ab_optimizer_value_text(config->optimizer, optim, i, text));
    }
    add_real(object, "beta1", optim->beta1, knobs & AB_KNOB_BETA1);
    add_real(object, "beta2", optim->beta2, knobs & AB_KNOB_BETA2);
    add_real(object, "alpha", optim->alpha, knobs & AB_KNOB_ALPHA);
    add_real(object, "eps", optim->eps, knobs & AB_KNOB_EPS);
    add_real(object, "lr_decay", optim->lr_decay, knobs & AB_KNOB_LR_DECAY);
    add_real(object, "trust_coefficient", optim->trust_coefficient, knobs & AB_KNOB_TRUST_COEFFICIENT);
}

static void add_groups(cJSON *object, const ab_param_groups *groups) {
    cJSON *list = cJSON_AddArrayToObject(object, "param_groups");
    for (int i = 0; i < groups->count; i++) {
        const ab_param_group *group = &groups->group[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "pattern", group->pattern);
        cJSON_AddNumberToObject(item, "lr_factor", group->lr_factor);
        add_real(item, "weight_decay", group->weight_decay, group->weight_decay >= 0);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_ranks(cJSON *object, const ab_rank_recipe *ranks) {
    char text[AB_REDUCTION_TEXT];
    const char *library = ab_rank_place_get().library;
    cJSON_AddNumberToObject(object, "ranks", (double)ranks->count);
    if (library) cJSON_AddStringToObject(object, "mpi", library);
    if (ranks->count < 2) return;
    cJSON *item = cJSON_AddObjectToObject(object, "reduction");
    cJSON_AddStringToObject(item, "reduce", ab_reduction_scheme_text(&ranks->reduction, text));
    cJSON_AddStringToObject(item, "wire", ranks->reduction.wire ? ranks->reduction.wire->name : "as-is");
    cJSON_AddStringToObject(item, "divide", ab_reduction_divide_text(&ranks->reduction, text));
    cJSON_AddNumberToObject(item, "bucket_bytes", ranks->bucket_bytes);
    if (ranks->sync_bn)
        cJSON_AddStringToObject(item, "sync_bn", ranks->sync_bn == AB_SYNC_APEX ? "apex" : "torch");
}

static void add_recipe(cJSON *object, const ab_run_config *config, const ab_options *options) {
    const ab_recipe *recipe = &config->recipe;
    cJSON_AddStringToObject(object, "schedule", options->text[AB_OPTION_schedule]);
    cJSON_AddNumberToObject(object, "schedule_total", (double)recipe->rates.total);
    cJSON_AddBoolToObject(object, "schedule_on_skip", recipe->schedule_on_skip);
    add_real(object, "clip_norm", recipe->clip.norm, recipe->clip.norm > 0);
    add_real(object, "clip_value", recipe->clip.value, recipe->clip.value > 0);
    cJSON_AddNumberToObject(object, "gradient_accumulation_steps", (double)recipe->micro_batches);
    add_ranks(object, &recipe->ranks);
    add_real(object, "ema", recipe->ema_decay, recipe->ema_decay > 0);
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
    add_real(object, "probe_budget", config->probe_budget, config->probe_budget > 0);
}

/* The default of --scales dynamic for a key. */
static double apex_default(const char *key) {
    const ab_scaler_kind *apex;
    if (ab_scaler_find("apex", &apex) != AB_OK) return 0;
    return ab_scaler_defaults(apex).value[ab_scaler_key_index(apex, key)];
}

static double window_of_run(const ab_run_config *config) {
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
    add_real(object, "epochs", (double)config->epochs, config->epochs > 0);
    add_optimizer(object, config);
    add_recipe(object, config, options);
    cJSON_AddNumberToObject(object, "seed", (double)config->seed);
    cJSON_AddNumberToObject(object, "seeds", (double)config->seeds);
    cJSON_AddNumberToObject(object, "threads", config->threads);
    cJSON_AddStringToObject(object, "order", options->text[AB_OPTION_order]);
    cJSON_AddStringToObject(object, "normalize", options->text[AB_OPTION_normalize]);
    if (options->text[AB_OPTION_pad]) cJSON_AddStringToObject(object, "pad", options->text[AB_OPTION_pad]);
    cJSON_AddNumberToObject(object, "rounds", (double)config->rounds);
    add_probes(object, config);
    cJSON_AddStringToObject(object, "accumulate", options->text[AB_OPTION_accumulate]);
    cJSON_AddStringToObject(object, "cpu_path", options->text[AB_OPTION_cpu_path]);
    cJSON_AddBoolToObject(object, "flush_denormal", config->flush_denormal);
    add_text(object, "init", config->init_file);
    add_text(object, "init_map", config->init_map);
    add_text(object, "resume_from", config->resume_file);
    cJSON_AddNumberToObject(object, "first_step", (double)config->first_step);
    cJSON_AddNumberToObject(object, "checkpoint_every", (double)config->checkpoint_every);
    add_real(object, "min_loss_scale", config->min_loss_scale, config->min_loss_scale != 0);
    add_real(object, "max_loss_scale",
             config->max_loss_scale != 0 ? config->max_loss_scale : apex_default("max"), true);
    add_real(object, "scale_window", window_of_run(config), true);
    cJSON_AddNumberToObject(object, "eval_limit", (double)config->eval_limit);
    cJSON_AddBoolToObject(object, "noise_floor", config->floor_draws > 0);
    cJSON_AddNumberToObject(object, "floor_draws", config->floor_draws);
    return object;
}

static cJSON *data_part(const ab_data *data) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", data->name);
    cJSON_AddStringToObject(object, "origin", data->origin);
    cJSON_AddStringToObject(object, "adapted", data->adapted);
    cJSON_AddNumberToObject(object, "train_count", (double)data->split[AB_SPLIT_TRAIN].count);
    cJSON_AddNumberToObject(object, "test_count", (double)data->split[AB_SPLIT_TEST].count);
    cJSON_AddStringToObject(object, "kind", ab_input_kind_text(data->shape.input));
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    for (int i = 0; i < data->shape.x.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)data->shape.x.dim[i]));
    cJSON_AddNumberToObject(object, "height", (double)data->height);
    cJSON_AddNumberToObject(object, "width", (double)data->width);
    cJSON_AddNumberToObject(object, "channels", (double)data->channels);
    cJSON_AddNumberToObject(object, "classes", (double)data->classes);
    cJSON_AddNumberToObject(object, "mean", data->mean);
    cJSON_AddNumberToObject(object, "std", data->std);
    return object;
}

static cJSON *network_part(const ab_net *net) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", net->name);
    cJSON_AddStringToObject(object, "text", net->text ? net->text : "");
    cJSON_AddNumberToObject(object, "parameters_count", (double)ab_net_parameters(net));
    return object;
}

static const char *input_name(const ab_net *net, int input) {
    if (input >= 0) return net->op[input].name;
    return input == AB_NET_TARGETS ? "targets" : "input";
}

static cJSON *traits_part(const char *type) {
    cJSON *traits = cJSON_CreateArray();
    for (int bit = 0; bit < AB_TRAIT_COUNT; bit++)
        if (ab_op_traits(type) & (1u << bit))
            cJSON_AddItemToArray(traits, cJSON_CreateString(ab_trait_name(bit)));
    return traits;
}

/* Whether the op adds its losses up where others average them. */
static bool is_summed(const ab_net_op *op) {
    for (const ab_attr *attr = op->op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, "reduction") == 0 && strcmp(attr->text, "mean|sum") == 0)
            return *(const int64_t *)(const void *)((const char *)op->attrs + attr->offset) == 1;
    return false;
}

static void add_untrained(cJSON *entry, const ab_net_op *op) {
    cJSON *names = cJSON_CreateArray();
    for (int k = 0; k < op->params; k++)
        if (op->untrained[k]) cJSON_AddItemToArray(names, cJSON_CreateString(op->param[k].name));
    if (names->child)
        cJSON_AddItemToObject(entry, "untrained", names);
    else
        cJSON_Delete(names);
}

/* Ops in execution order with their inputs, for reports/record/graph.h. */
static cJSON *graph_part(const ab_net *net) {
    cJSON *graph = cJSON_CreateObject(), *ops = cJSON_AddArrayToObject(graph, "ops");
    for (int i = 0; i < net->ops; i++) {
        const ab_net_op *op = &net->op[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "op", op->name);
        cJSON_AddStringToObject(entry, "type", op->op->name);
        cJSON *inputs = cJSON_AddArrayToObject(entry, "inputs");
        for (int k = 0; k < op->inputs; k++)
            cJSON_AddItemToArray(inputs, cJSON_CreateString(input_name(net, op->input[k])));
        cJSON_AddItemToObject(entry, "traits", traits_part(op->op->name));
        if (is_summed(op)) cJSON_AddStringToObject(entry, "reduction", "sum");
        add_untrained(entry, op);
        if (op->accumulate_half) cJSON_AddStringToObject(entry, "accumulate", "half");
        cJSON_AddItemToArray(ops, entry);
    }
    return graph;
}

static cJSON *design_part(const ab_run_config *config, int count, const int *order) {
    cJSON *design = cJSON_CreateObject();
    cJSON_AddNumberToObject(design, "rounds", (double)config->rounds);
    cJSON_AddNumberToObject(design, "order_seed", (double)config->seed);
    cJSON *rounds = cJSON_AddArrayToObject(design, "order");
    for (int64_t r = 0; r < config->rounds; r++) {
        cJSON *round = cJSON_CreateArray();
        for (int p = 0; p < count; p++)
            if (order[r * count + p] >= 0)
                cJSON_AddItemToArray(round, cJSON_CreateNumber(order[r * count + p]));
        cJSON_AddItemToArray(rounds, round);
    }
    return design;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static cJSON *tri(ab_tristate value) {
    if (value == AB_TRI_none) return cJSON_CreateNull();
    return cJSON_CreateBool(value == AB_TRI_true);
}

/* Formats of kept state where they are not the weights', and what was asked of the level by name. */
static void add_keep(cJSON *object, const ab_cell_spec *spec, const char *named) {
    const ab_keep *keep = &spec->policy.keep;
    if (keep->state_format) cJSON_AddStringToObject(object, "optimizer_state", keep->state_format->name);
    if (keep->ema_format) cJSON_AddStringToObject(object, "ema_format", keep->ema_format->name);
    if (named) cJSON_AddStringToObject(object, "named", named);
    if (ab_level_is_reference(spec->level))
        cJSON_AddStringToObject(object, "reference", named ? "changed" : "fp32");
}

static cJSON *policy_part(const ab_policy *policy) {
    cJSON *object = cJSON_CreateObject();
    add_text(object, "cast_model_type", ab_policy_cast_text(policy));
    cJSON_AddBoolToObject(object, "patch_torch_functions", policy->patch_torch_functions);
    cJSON_AddItemToObject(object, "keep_batchnorm_fp32", tri(policy->keep_batchnorm_fp32));
    cJSON_AddItemToObject(object, "master_weights", tri(policy->master_weights));
    char scale[AB_SCALER_TEXT];
    if (policy->loss_scale.dynamic)
        cJSON_AddStringToObject(object, "loss_scale", ab_loss_scale_text(&policy->loss_scale, scale));
    else
        cJSON_AddNumberToObject(object, "loss_scale", policy->loss_scale.value);
    if (policy->num_losses > 1) cJSON_AddNumberToObject(object, "num_losses", policy->num_losses);
    if (policy->batch_norm_statistics != AB_CAST_none)
        cJSON_AddStringToObject(object, "batch_norm_statistics",
                                policy->batch_norm_statistics == AB_CAST_half ? policy->half->name : "fp32");
    if (policy->keep.fp32_masters) cJSON_AddStringToObject(object, "masters_from", "fp32");
    if (policy->cast_model_outputs != AB_CAST_none)
        cJSON_AddStringToObject(object, "cast_model_outputs",
                                policy->cast_model_outputs == AB_CAST_half ? policy->half->name : "fp32");
    if (!policy->enabled) cJSON_AddFalseToObject(object, "enabled");
    return object;
}

/* Adds the window of a scaler if it differs from config.scale_window: from its own text, or its dialect's
 * default. */
static void add_window(cJSON *cell, const ab_run_config *config, const ab_loss_scale *scale) {
    const int i = scale->dynamic ? ab_scaler_key_index(scale->scaler.kind, "window") : -1;
    if (i < 0) return;
    const bool option = config->scale_window != 0 && !(scale->scaler.given >> i & 1u);
    const double window = option ? (double)config->scale_window : scale->scaler.value[i];
    if (window != window_of_run(config)) cJSON_AddNumberToObject(cell, "scale_window", window);
}

static cJSON *new_cell(const ab_run_config *config, const ab_cell_spec *spec) {
    cJSON *cell = cJSON_CreateObject();
    const ab_policy *policy = &spec->policy;
    char scale[AB_SCALER_TEXT];
    bool half = policy->cast_model_type == AB_CAST_half || policy->patch_torch_functions;
    const bool all = config->accumulate_half, some = ab_net_half_accumulators(config->net) > 0;
    const bool emulated = (all || some) && half;
    cJSON_AddStringToObject(cell, "id", spec->id);
    static const char *const twins[] = {NULL, "ulp", "rounding"};
    cJSON_AddStringToObject(cell, "config_digest", spec->digest);
    cJSON_AddStringToObject(cell, "model", config->net->name);
    cJSON_AddStringToObject(cell, "level", spec->level->name);
    if (strcmp(policy->label, policy->level) != 0) cJSON_AddStringToObject(cell, "label", policy->label);
    cJSON_AddStringToObject(cell, "scale_policy", ab_loss_scale_text(&policy->loss_scale, scale));
    add_window(cell, config, &policy->loss_scale);
    cJSON_AddStringToObject(cell, "half_format", spec->half->name);
    cJSON_AddStringToObject(cell, "device", config->device->name);
    cJSON_AddNumberToObject(cell, "seed", (double)spec->seed);
    add_text(cell, "twin", twins[spec->perturbation]);
    if (spec->draw > 0) cJSON_AddNumberToObject(cell, "draw", spec->draw + 1);
    cJSON_AddStringToObject(cell, "status", "pending");
    cJSON_AddNullToObject(cell, "reason");
    cJSON *properties = policy_part(policy);
    add_keep(properties, spec, spec->own->named);
    cJSON_AddItemToObject(cell, "policy", properties);
    cJSON_AddStringToObject(cell, "math_mode", half ? spec->half->name : policy->tf32 ? "tf32" : "ieee_fp32");
    cJSON_AddStringToObject(cell, "accumulate", emulated ? "half" : "fp32");
    cJSON_AddBoolToObject(cell, "emulated", emulated);
    add_text(
        cell, "emulated_text",
        !emulated ? NULL
        : !all
            ? "sums of products of the ops whose graph entry says so are rounded to the half format at every "
              "step by software; times mean nothing"
            : "sums of products are rounded to the half format at every step by software; times mean "
              "nothing");
    cJSON_AddArrayToObject(cell, "processes");
    return cell;
}

static void add_losses(cJSON *cell, const ab_process *process) {
    cJSON *loss = cJSON_CreateArray();
    int64_t nonfinite = 0;
    for (int64_t i = 0; i < process->steps; i++) {
        bool finite = isfinite(process->step[i].loss);
        nonfinite += !finite;
        cJSON_AddItemToArray(loss,
                             finite ? cJSON_CreateNumber((double)process->step[i].loss) : cJSON_CreateNull());
    }
    put(cell, "loss", loss);
    put(cell, "nonfinite_losses", cJSON_CreateNumber((double)nonfinite));
}

/* Numbers of every step, where they are known of any: null where they are not finite. */
static void add_steps(cJSON *cell, const char *key, const ab_process *process, size_t member) {
    cJSON *list = cJSON_CreateArray();
    bool any = false;
    for (int64_t i = 0; i < process->steps; i++) {
        const double value = *(const double *)(const void *)((const char *)&process->step[i] + member);
        any = any || isfinite(value);
        cJSON_AddItemToArray(list, isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
    }
    if (any)
        put(cell, key, list);
    else
        cJSON_Delete(list);
}

/* Runs of equal learning rates. */
static void add_rates(cJSON *cell, const ab_process *process) {
    cJSON *rates = cJSON_CreateArray();
    for (int64_t i = 0, run = 0; i < process->steps; i++) {
        run++;
        if (i + 1 < process->steps && process->step[i + 1].lr == process->step[i].lr) continue;
        const double pair[2] = {process->step[i].lr, (double)run};
        cJSON_AddItemToArray(rates, cJSON_CreateDoubleArray(pair, 2));
        run = 0;
    }
    put(cell, "lr", rates);
}

static void add_scales(cJSON *cell, const ab_process *process) {
    cJSON *scale = cJSON_CreateArray(), *skipped = cJSON_CreateArray();
    int64_t skips = 0, first = -1;
    for (int64_t i = 0, run = 0; i < process->steps; i++) {
        run++;
        if (process->step[i].skipped) {
            if (skips == 0) first = i;
            if (skips++ < SKIPPED_KEPT) cJSON_AddItemToArray(skipped, cJSON_CreateNumber((double)i));
        }
        if (i + 1 < process->steps && process->step[i + 1].scale == process->step[i].scale) continue;
        const double pair[2] = {process->step[i].scale, (double)run};
        cJSON_AddItemToArray(scale, cJSON_CreateDoubleArray(pair, 2));
        run = 0;
    }
    put(cell, "scale", scale);
    put(cell, "skipped_steps", skipped);
    put(cell, "skipped_steps_truncated", cJSON_CreateBool(skips > SKIPPED_KEPT));
    put(cell, "steps_total", cJSON_CreateNumber((double)process->steps));
    put(cell, "steps_applied", cJSON_CreateNumber((double)(process->steps - skips)));
    put(cell, "steps_skipped", cJSON_CreateNumber((double)skips));
    put(cell, "first_skipped_step", first < 0 ? cJSON_CreateNull() : cJSON_CreateNumber((double)first));
}

/* Adds the trace of each loss's or layer's scale to its entry from the start event. */
static void add_own_scales(cJSON *cell, const ab_process *process) {
    const cJSON *losses = cJSON_GetObjectItem(cell, "loss_scales");
    const cJSON *list = losses ? losses : cJSON_GetObjectItem(cell, "layer_scales");
    const int scalers = process->scalers;
    for (int k = 0; k < scalers; k++) {
        cJSON *entry = cJSON_GetArrayItem(list, k), *runs = cJSON_CreateArray();
        const double *scale = process->scales + k;
        int64_t overflows = 0;
        for (int64_t i = 0, run = 0; i < process->steps; i++) {
            run++;
            overflows += process->overflows[i] >> k & 1;
            if (i + 1 < process->steps && scale[(i + 1) * scalers] == scale[i * scalers]) continue;
            const double pair[2] = {scale[i * scalers], (double)run};
            cJSON_AddItemToArray(runs, cJSON_CreateDoubleArray(pair, 2));
            run = 0;
        }
        put(entry, "scale", runs);
        if (losses) put(entry, "overflows", cJSON_CreateNumber((double)overflows));
    }
}

/* Moves copies of an event's keys into the cell. */
static void adopt(cJSON *cell, const cJSON *event) {
    const cJSON *item = NULL;
    if (!event) return;
    cJSON_ArrayForEach(item, event) put(cell, item->string, cJSON_Duplicate(item, 1));
}

static const char *loss_digest(const ab_process *process, char text[17]) {
    ab_digest digest = ab_digest_start();
    for (int64_t i = 0; i < process->steps; i++)
        digest = ab_digest_add(digest, &process->step[i].loss, sizeof process->step[i].loss);
    return ab_digest_text(digest, text);
}

/* The cost of probing: probed steps compared with the median of the others. */
static int64_t probe_time(const ab_process *process, const int64_t *times, int64_t n) {
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    int64_t total = 0, probed = 0;
    if (!values) return 0;
    for (int64_t i = 0; i < n; i++) values[i] = (double)times[i];
    for (int64_t i = 1; i < process->steps; i++) {
        if (!process->step[i].probed) continue;
        total += process->step[i].time_ns;
        probed++;
    }
    double usual = ab_median(values, n);
    free(values);
    int64_t cost = total - (int64_t)((double)probed * usual);
    return n > 0 && cost > 0 ? cost : 0;
}

static ab_status add_times(cJSON *entry, const ab_process *process) {
    int64_t n = 0, *times = malloc((size_t)(process->steps + 1) * sizeof *times);
    if (!times) return ab_fail(AB_NO_MEMORY, "record: out of memory");
    cJSON *list = cJSON_AddArrayToObject(entry, "step_time_ns");
    for (int64_t i = 1; i < process->steps; i++) {
        if (process->step[i].probed) continue;
        times[n++] = process->step[i].time_ns;
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)process->step[i].time_ns));
    }
    cJSON_AddNumberToObject(entry, "warmup_steps", (double)ab_warmup_steps(times, n));
    add_real(entry, "first_step_ns", process->steps ? (double)process->step[0].time_ns : 0,
             process->steps > 0);
    cJSON_AddNumberToObject(entry, "probe_time_ns", (double)probe_time(process, times, n));
    free(times);
    return AB_OK;
}

/* All processes of a cell must have produced the same losses, bit for bit. */
static cJSON *deterministic(const cJSON *cell) {
    const cJSON *processes = cJSON_GetObjectItem(cell, "processes"), *entry = NULL;
    const char *first = NULL;
    bool same = true;
    cJSON_ArrayForEach(entry, processes) {
        const char *digest = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "loss_digest"));
        if (!first) first = digest;
        same = same && digest && first && strcmp(digest, first) == 0;
    }
    return cJSON_GetArraySize(processes) < 2 ? cJSON_CreateNull() : cJSON_CreateBool(same);
}

static void set_failed(cJSON *cell, const ab_process *process) {
    put(cell, "status", cJSON_CreateString(process->interrupted ? "interrupted" : "failed"));
    put(cell, "reason", cJSON_CreateString(process->reason));
}

ab_status ab_record_process(cJSON *cell, int round, int position, bool full, const ab_process *process,
                            const cJSON **added) {
    char digest[17];
    *added = NULL;
    loss_digest(process, digest);
    if (process->reason[0]) set_failed(cell, process);
    if (full) {
        adopt(cell, process->start);
        add_losses(cell, process);
        add_scales(cell, process);
        add_rates(cell, process);
        add_steps(cell, "gradient_norm", process, offsetof(ab_step_event, gradient_norm));
        add_steps(cell, "train_accuracy", process, offsetof(ab_step_event, accuracy));
        add_own_scales(cell, process);
        put(cell, "loss_digest", cJSON_CreateString(digest));
        adopt(cell, process->evaluation);
        if (process->probes) put(cell, "probes", cJSON_Duplicate(process->probes, 1));
        if (process->reduction) put(cell, "reduction", cJSON_Duplicate(process->reduction, 1));
        if (process->replicas) put(cell, "replicas", cJSON_Duplicate(process->replicas, 1));
        if (process->rank_samples)
            put(cell, "rank_samples",
                cJSON_Duplicate(cJSON_GetObjectItem(process->rank_samples, "ranks"), 1));
        if (process->communication) put(cell, "communication", cJSON_Duplicate(process->communication, 1));
        if (process->saved) put(cell, "saved_gradients", cJSON_Duplicate(process->saved, 1));
        if (process->shadow) put(cell, "shadow", cJSON_Duplicate(process->shadow, 1));
        const cJSON *profile = cJSON_GetObjectItem(process->profile, "profile");
        if (profile) put(cell, "profile", cJSON_Duplicate(profile, 1));
    }
    if (process->reason[0]) return AB_OK;
    if (full) {
        put(cell, "status", cJSON_CreateString("ok"));
        put(cell, "reason", cJSON_CreateNull());
    }
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_GetObjectItem(cell, "processes"), entry);
    cJSON_AddNumberToObject(entry, "round", round);
    cJSON_AddNumberToObject(entry, "position", position);
    cJSON_AddStringToObject(entry, "loss_digest", digest);
    AB_TRY(add_times(entry, process));
    adopt(entry, process->end);
    put(cell, "deterministic", deterministic(cell));
    *added = entry;
    return AB_OK;
}

void ab_record_fail(cJSON *cell, const char *reason) {
    put(cell, "status", cJSON_CreateString("failed"));
    put(cell, "reason", cJSON_CreateString(reason));
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Cells of machines of equal classes are comparable, whoever came first. */
static ab_status set_key(cJSON *document, const cJSON *machines) {
    const cJSON *machine;
    int n = 0;
    char key[17];
    ab_digest digest = ab_digest_start();
    const char **class = calloc((size_t)cJSON_GetArraySize(machines) + 1, sizeof *class);
    if (!class) return ab_fail(AB_NO_MEMORY, "record: out of memory");
    cJSON_ArrayForEach(machine, machines) class[n++] = ab_json_text(machine, "class", "");
    qsort(class, (size_t)n, sizeof *class, compare_texts);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(class[i], class[i - 1]) != 0)
            digest = ab_digest_add(digest, class[i], strlen(class[i]) + 1);
    free(class);
    put(document, "comparability_key", cJSON_CreateString(ab_digest_text(digest, key)));
    return AB_OK;
}

static cJSON *new_machine(const char *name, const cJSON *line) {
    static const char *const facts[] = {"cpu_model", "isa", "cores", "affinity", "hostname_hash", "kernel"};
    cJSON *machine = cJSON_CreateObject();
    const cJSON *environment = cJSON_GetObjectItem(line, "environment");
    cJSON_AddStringToObject(machine, "name", name);
    cJSON_AddStringToObject(machine, "class", ab_json_text(line, "class", ""));
    cJSON_AddNumberToObject(machine, "threads", ab_json_number(line, "threads", 0));
    for (size_t i = 0; i < AB_COUNT_OF(facts); i++)
        put(machine, facts[i], cJSON_Duplicate(cJSON_GetObjectItem(environment, facts[i]), 1));
    return machine;
}

ab_status ab_record_machine(cJSON *document, const char *name, const cJSON *line, int *machine, bool *added) {
    cJSON *list = cJSON_GetObjectItem(document, "machines"), *known = NULL;
    const char *class = ab_json_text(line, "class", NULL),
               *host = ab_json_text(line, "environment.hostname_hash", NULL);
    if (!class || !host) return ab_fail(AB_INPUT, "%s: a part's first line is not sound", name);
    *machine = 0;
    *added = false;
    cJSON_ArrayForEach(known, list) {
        if (strcmp(ab_json_text(known, "class", ""), class) == 0 &&
            strcmp(ab_json_text(known, "hostname_hash", ""), host) == 0)
            return AB_OK;
        ++*machine;
    }
    *added = true;
    cJSON_AddItemToArray(list, new_machine(name, line));
    if (*machine > 0) return set_key(document, list);
    put(document, "environment", cJSON_Duplicate(cJSON_GetObjectItem(line, "environment"), 1));
    put(document, "generator", cJSON_Duplicate(cJSON_GetObjectItem(line, "generator"), 1));
    return set_key(document, list);
}

void ab_record_limits(cJSON *document, const ab_process *process) {
    const cJSON *limits = cJSON_GetObjectItem(process->profile, "machine_limits");
    if (limits) put(document, "machine_limits", cJSON_Duplicate(limits, 1));
}

bool ab_record_has_round(const cJSON *cell, int round) {
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItem(cell, "processes")) {
        const cJSON *has = cJSON_GetObjectItem(entry, "round");
        if (cJSON_IsNumber(has) && (int)has->valuedouble == round) return true;
    }
    return false;
}

const char *ab_record_status(const cJSON *cell) {
    const char *status = cJSON_GetStringValue(cJSON_GetObjectItem(cell, "status"));
    return status ? status : "pending";
}

void ab_record_reopen(cJSON *document) {
    cJSON *cell = NULL;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        put(cell, "status", cJSON_CreateString(ab_record_has_round(cell, 0) ? "ok" : "pending"));
        put(cell, "reason", cJSON_CreateNull());
    }
}

/* ---- document -------------------------------------------------------------------------------- */

static const char flush_on_gpu[] =
    "--flush-denormal changes nothing that the GPU computes: its kernels are compiled with --ftz=false and "
    "keep "
    "subnormals; only ops without a kernel of their own, which the host computes, take them as zeros";

ab_status ab_record_create(const ab_run_config *config, const ab_options *options, int argc,
                           char *const *argv, const ab_cell_spec *cells, int count, const int *order,
                           cJSON **result) {
    cJSON *document = cJSON_CreateObject();
    cJSON *generator = ab_environment_generator(), *machine = ab_environment_machine();
    char key[17];
    if (!document || !generator || !machine) return ab_fail(AB_NO_MEMORY, "record: out of memory");
    put(machine, "denormals", cJSON_CreateString(config->flush_denormal ? "flushed" : "kept"));
    ab_environment_key(generator, machine, key);
    cJSON_AddStringToObject(document, "schema", "ampbench-result");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddItemToObject(document, "generator", generator);
    cJSON_AddItemToObject(document, "run", run_part(options, argc, argv));
    cJSON_AddItemToObject(document, "config", ab_record_config(config, options));
    cJSON_AddItemToObject(document, "environment", machine);
    cJSON_AddStringToObject(document, "comparability_key", key);
    cJSON *determinism = cJSON_AddObjectToObject(document, "determinism");
    cJSON_AddNumberToObject(determinism, "seed", (double)config->seed);
    cJSON_AddStringToObject(determinism, "rng", "philox4x32-10");
    cJSON_AddStringToObject(determinism, "rounding", "rne");
    cJSON_AddNullToObject(determinism, "all_cells_deterministic");
    cJSON_AddItemToObject(document, "design", design_part(config, count, order));
    cJSON_AddItemToObject(document, "data", data_part(config->data));
    cJSON_AddItemToObject(document, "network", network_part(config->net));
    cJSON_AddItemToObject(document, "graph", graph_part(config->net));
    cJSON *list = cJSON_AddArrayToObject(document, "cells");
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, new_cell(config, &cells[i]));
    cJSON_AddNullToObject(document, "noise_floor");
    cJSON_AddNullToObject(document, "rounding_floor");
    if (options->given[AB_OPTION_launch]) cJSON_AddArrayToObject(document, "machines");
    cJSON *warnings = cJSON_AddArrayToObject(document, "warnings");
    if (config->flush_denormal && strcmp(config->device->name, "cpu") != 0)
        cJSON_AddItemToArray(warnings, cJSON_CreateString(flush_on_gpu));
    *result = document;
    return AB_OK;
}

void ab_record_probing(cJSON *document, int64_t every, double budget, const ab_probe_cost *cost, int costs) {
    cJSON *probing = cJSON_CreateObject();
    const ab_probe_cost *most = NULL;
    for (int i = 0; i < costs; i++)
        if (!most || cost[i].probe_ns * most->step_ns > most->probe_ns * cost[i].step_ns) most = &cost[i];
    cJSON_AddNumberToObject(probing, "every", (double)every);
    cJSON_AddNumberToObject(probing, "budget", budget);
    add_real(probing, "step_ns", most ? most->step_ns : 0, most != NULL);
    add_real(probing, "probe_ns", most ? most->probe_ns : 0, most != NULL);
    cJSON_AddNullToObject(probing, "cost_share");
    put(cJSON_GetObjectItem(document, "design"), "probing", probing);
}

/* What probing added to the time of all cells' steps in all rounds, by what each cell's process measured. */
static void set_probing_share(cJSON *document) {
    cJSON *probing = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "design"), "probing");
    const cJSON *cell;
    double work = 0, cost = 0;
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        const double spent = ab_json_number(cell, "probes.sampling.cost_ns", 0),
                     share = ab_json_number(cell, "probes.sampling.cost_share", 0);
        if (!(share > 0)) continue;
        work += spent / share * cJSON_GetArraySize(cJSON_GetObjectItem(cell, "processes"));
        cost += spent;
    }
    if (probing) put(probing, "cost_share", work > 0 ? cJSON_CreateNumber(cost / work) : cJSON_CreateNull());
}

void ab_record_warn(cJSON *document, const char *text) {
    cJSON *warnings = cJSON_GetObjectItem(document, "warnings"), *known = NULL;
    cJSON_ArrayForEach(known, warnings) {
        if (strcmp(cJSON_GetStringValue(known), text) == 0) return;
    }
    cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
}

void ab_record_finish(cJSON *document, bool complete, int exit_status, double elapsed_s) {
    cJSON *run = cJSON_GetObjectItem(document, "run");
    char text[32];
    set_probing_share(document);
    put(run, "finished_utc", text_or_null(complete ? utc_now(text) : NULL));
    put(run, "complete", cJSON_CreateBool(complete));
    put(run, "exit_status", complete ? cJSON_CreateNumber(exit_status) : cJSON_CreateNull());
    put(run, "elapsed_s", cJSON_CreateNumber(elapsed_s));
    put(cJSON_GetObjectItem(document, "determinism"), "all_cells_deterministic",
        ab_cells_deterministic(document));
}
