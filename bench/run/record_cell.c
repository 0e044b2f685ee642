/* A cell of a document: what it is to train, then what the events of its processes say. */
#define _GNU_SOURCE
#include "bench/run/record.h"

#include "bench/run/config/digest.h"
#include "bench/run/worker.h"
#include "bench/timer/timer.h"
#include "reports/record/json.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED_KEPT = 4096 };

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
    ab_json_add_text(object, "cast_model_type", ab_policy_cast_text(policy));
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
    if (window != ab_record_scale_window(config)) cJSON_AddNumberToObject(cell, "scale_window", window);
}

cJSON *ab_record_new_cell(const ab_run_config *config, const ab_cell_spec *spec) {
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
    ab_json_add_text(cell, "twin", twins[spec->perturbation]);
    if (spec->draw > 0) cJSON_AddNumberToObject(cell, "draw", spec->draw + 1);
    cJSON_AddStringToObject(cell, "status", "pending");
    cJSON_AddNullToObject(cell, "reason");
    cJSON *properties = policy_part(policy);
    add_keep(properties, spec, spec->own->named);
    cJSON_AddItemToObject(cell, "policy", properties);
    cJSON_AddStringToObject(cell, "math_mode", half ? spec->half->name : policy->tf32 ? "tf32" : "ieee_fp32");
    cJSON_AddStringToObject(cell, "accumulate", emulated ? "half" : "fp32");
    cJSON_AddBoolToObject(cell, "emulated", emulated);
    ab_json_add_text(
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
    ab_json_put(cell, "loss", loss);
    ab_json_put(cell, "nonfinite_losses", cJSON_CreateNumber((double)nonfinite));
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
        ab_json_put(cell, key, list);
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
    ab_json_put(cell, "lr", rates);
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
    ab_json_put(cell, "scale", scale);
    ab_json_put(cell, "skipped_steps", skipped);
    ab_json_put(cell, "skipped_steps_truncated", cJSON_CreateBool(skips > SKIPPED_KEPT));
    ab_json_put(cell, "steps_total", cJSON_CreateNumber((double)process->steps));
    ab_json_put(cell, "steps_applied", cJSON_CreateNumber((double)(process->steps - skips)));
    ab_json_put(cell, "steps_skipped", cJSON_CreateNumber((double)skips));
    ab_json_put(cell, "first_skipped_step",
                first < 0 ? cJSON_CreateNull() : cJSON_CreateNumber((double)first));
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
        ab_json_put(entry, "scale", runs);
        if (losses) ab_json_put(entry, "overflows", cJSON_CreateNumber((double)overflows));
    }
}

/* Moves copies of an event's keys into the cell. */
static void adopt(cJSON *cell, const cJSON *event) {
    const cJSON *item = NULL;
    if (!event) return;
    cJSON_ArrayForEach(item, event) ab_json_put(cell, item->string, cJSON_Duplicate(item, 1));
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
    ab_json_add_known(entry, "first_step_ns", process->steps ? (double)process->step[0].time_ns : 0,
                      process->steps > 0);
    cJSON_AddNumberToObject(entry, "probe_time_ns", (double)probe_time(process, times, n));
    free(times);
    return AB_OK;
}

/* Whether the process's losses are the cell's first ones; of those that are not finite, which the document
 * has no bits of, whether these are neither. */
static bool losses_repeat(const cJSON *cell, const ab_process *process) {
    const cJSON *loss = ab_json_at(cell, "loss"), *item = loss ? loss->child : NULL;
    for (int64_t i = 0; i < process->steps; i++, item = item->next) {
        const float own = process->step[i].loss;
        if (!item) return false;
        if (cJSON_IsNumber(item) ? (double)own != item->valuedouble : isfinite(own)) return false;
    }
    return true;
}

/* A later round that repeats the first steps of the cell only says so. */
static void add_steps_repeated(cJSON *entry, const cJSON *cell, const ab_process *process) {
    if ((double)process->steps >= ab_json_number(cell, "steps_total", 0)) return;
    cJSON_AddNumberToObject(entry, "steps", (double)process->steps);
    cJSON_AddBoolToObject(entry, "losses_repeat", losses_repeat(cell, process));
}

/* All processes of a cell must have produced the same losses, bit for bit. */
static cJSON *deterministic(const cJSON *cell) {
    const cJSON *processes = cJSON_GetObjectItem(cell, "processes"), *entry = NULL;
    const char *first = NULL;
    bool same = true;
    cJSON_ArrayForEach(entry, processes) {
        const char *digest = cJSON_GetStringValue(cJSON_GetObjectItem(entry, "loss_digest"));
        const cJSON *repeat = cJSON_GetObjectItem(entry, "losses_repeat");
        if (!first) first = digest;
        same = same && (repeat ? cJSON_IsTrue(repeat) : digest && first && strcmp(digest, first) == 0);
    }
    return cJSON_GetArraySize(processes) < 2 ? cJSON_CreateNull() : cJSON_CreateBool(same);
}

static void set_failed(cJSON *cell, const ab_process *process) {
    ab_json_put(cell, "status", cJSON_CreateString(process->interrupted ? "interrupted" : "failed"));
    ab_json_put(cell, "reason", cJSON_CreateString(process->reason));
}

static void add_place(cJSON *entry, const ab_process_place *place) {
    cJSON_AddNumberToObject(entry, "round", place->round);
    cJSON_AddNumberToObject(entry, "position", place->position);
    if (place->beside == 0) return;
    cJSON_AddNumberToObject(entry, "beside", place->beside);
    cJSON_AddNumberToObject(entry, "threads", place->threads);
}

ab_status ab_record_process(cJSON *cell, const ab_process_place *place, const ab_process *process,
                            const cJSON **added) {
    char digest[17];
    const bool full = place->round == 0;
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
        ab_json_put(cell, "loss_digest", cJSON_CreateString(digest));
        adopt(cell, process->evaluation);
        if (process->probes) ab_json_put(cell, "probes", cJSON_Duplicate(process->probes, 1));
        if (process->reduction) ab_json_put(cell, "reduction", cJSON_Duplicate(process->reduction, 1));
        if (process->replicas) ab_json_put(cell, "replicas", cJSON_Duplicate(process->replicas, 1));
        if (process->rank_samples)
            ab_json_put(cell, "rank_samples",
                        cJSON_Duplicate(cJSON_GetObjectItem(process->rank_samples, "ranks"), 1));
        if (process->communication)
            ab_json_put(cell, "communication", cJSON_Duplicate(process->communication, 1));
        if (process->saved) ab_json_put(cell, "saved_gradients", cJSON_Duplicate(process->saved, 1));
        if (process->shadow) ab_json_put(cell, "shadow", cJSON_Duplicate(process->shadow, 1));
        const cJSON *profile = cJSON_GetObjectItem(process->profile, "profile");
        if (profile) ab_json_put(cell, "profile", cJSON_Duplicate(profile, 1));
    }
    if (process->reason[0]) return AB_OK;
    if (full) {
        ab_json_put(cell, "status", cJSON_CreateString("ok"));
        ab_json_put(cell, "reason", cJSON_CreateNull());
    }
    cJSON *entry = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_GetObjectItem(cell, "processes"), entry);
    add_place(entry, place);
    cJSON_AddStringToObject(entry, "loss_digest", digest);
    if (!full) add_steps_repeated(entry, cell, process);
    AB_TRY(add_times(entry, process));
    adopt(entry, process->end);
    ab_json_put(cell, "deterministic", deterministic(cell));
    *added = entry;
    return AB_OK;
}

void ab_record_fail(cJSON *cell, const char *reason) {
    ab_json_put(cell, "status", cJSON_CreateString("failed"));
    ab_json_put(cell, "reason", cJSON_CreateString(reason));
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
        ab_json_put(cell, "status", cJSON_CreateString(ab_record_has_round(cell, 0) ? "ok" : "pending"));
        ab_json_put(cell, "reason", cJSON_CreateNull());
    }
}
