/* Writes the survey of a checkpoint as a result document. What a checkpoint cannot tell is left out. */
#include "bench/checkpoint/record.h"

#include "bench/checkpoint/survey.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PARAMS = 4096, NAME = 200 };
static const double default_growth = 2000;

typedef struct writer {
    const ab_checkpoint *first, *last;
    const ab_format *half;
    cJSON *document, *cell, *ledgers, *params;
    int64_t zero, below_eps, elements, lost, nonzero;
    int by_shape;
} writer;

/* ---- pieces ---------------------------------------------------------------------------------- */

static void add_measure(cJSON *to, const char *key, double x) {
    if (isfinite(x)) cJSON_AddNumberToObject(to, key, x);
}

static cJSON *add_list(cJSON *to, const char *key, const char *text) {
    cJSON *list = cJSON_AddArrayToObject(to, key);
    if (text) cJSON_AddItemToArray(list, cJSON_CreateString(text));
    return list;
}

static double share(double part, double all) { return all > 0 ? part / all : 0; }

static const char *format_name(const ab_format *format) { return format ? format->name : "none"; }

static bool is_half(const ab_format *format) { return format && format->storage_bytes == 2; }

/* Names are those of files: printable and valid in JSON. */
static void add_name(cJSON *to, const char *key, const char *name) {
    char text[NAME];
    cJSON_AddStringToObject(to, key, ab_text_clean(text, sizeof text, name));
}

/* "model.layers.0.mlp.weight": the layer is all but the last part. */
static void add_layer(cJSON *to, const char *name) {
    char text[NAME];
    ab_text_clean(text, sizeof text, name);
    if (strrchr(text, '.')) *strrchr(text, '.') = '\0';
    cJSON_AddStringToObject(to, "layer", text);
}

/* The columns of one step, the next one; NAN: not known. */
static void add_step(cJSON *to, const char *const *lists, const double *values, int count) {
    cJSON *steps = cJSON_AddObjectToObject(to, "steps");
    cJSON_AddNumberToObject(steps, "first", 0);
    cJSON_AddNumberToObject(steps, "stride", 1);
    cJSON_AddNumberToObject(steps, "count", 1);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(cJSON_AddArrayToObject(steps, lists[i]),
                             isnan(values[i]) ? cJSON_CreateNull() : cJSON_CreateNumber(values[i]));
}

/* ---- parameters ------------------------------------------------------------------------------ */

static const char *name_of(const writer *w, const ab_checkpoint_moments *m) {
    return m->weight >= 0 ? w->last->weight[m->weight].name : m->second.name;
}

static void add_ledger(writer *w, const ab_checkpoint_moments *m, const ab_checkpoint_account *a) {
    static const char *const unknown[] = {"gradient", "weight_decay", "momentum", "eps"}, *const lists[] = {
                                                                                              "nonzero",
                                                                                              "lost"};
    const char *name = name_of(w, m);
    cJSON *item = cJSON_CreateObject(), *update;
    cJSON_AddItemToArray(w->ledgers, item);
    add_name(item, "name", name);
    add_layer(item, name);
    cJSON_AddStringToObject(item, "format", w->last->weight[m->weight].entry->element->name);
    update = cJSON_AddObjectToObject(item, "update");
    cJSON_AddNumberToObject(update, "nonzero", (double)a->nonzero);
    cJSON_AddNumberToObject(update, "lost", (double)a->lost);
    cJSON_AddNumberToObject(update, "energy", a->energy);
    cJSON_AddNumberToObject(update, "lost_energy", a->lost_energy);
    cJSON_AddNumberToObject(update, "lost_share", share((double)a->lost, (double)a->nonzero));
    cJSON_AddNumberToObject(update, "lost_energy_share", share(a->lost_energy, a->energy));
    for (size_t i = 0; i < AB_COUNT_OF(unknown); i++) cJSON_AddNullToObject(item, unknown[i]);
    cJSON_AddNullToObject(item, "direction_quality");
    cJSON *freeze = cJSON_AddObjectToObject(item, "freeze");
    cJSON_AddNumberToObject(freeze, "lr", w->last->group[m->group >= 0 ? m->group : 0].lr);
    cJSON_AddNullToObject(freeze, "lr_half_lost");
    cJSON_AddNullToObject(freeze, "lr_stops");
    cJSON_AddNullToObject(freeze, "stopped_since_step");
    add_step(item, lists, (const double[]){(double)a->nonzero, (double)a->lost}, 2);
}

static void add_state(writer *w, const ab_checkpoint_moments *m, const ab_checkpoint_account *a) {
    static const char *const lists[] = {"rms_max"};
    const char *name = name_of(w, m);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(w->params, item);
    add_name(item, "name", name);
    add_layer(item, name);
    cJSON_AddStringToObject(item, "state_format", m->second.entry->element->name);
    cJSON_AddNullToObject(item, "rms");
    cJSON_AddNullToObject(item, "rms_max");
    cJSON_AddNumberToObject(item, "rms_max_step", 0);
    cJSON_AddNumberToObject(item, "steps_over_limit", 0);
    cJSON_AddNullToObject(item, "stale_share");
    cJSON_AddNumberToObject(item, "below_eps_share", share((double)a->below_eps, (double)a->count));
    cJSON_AddNumberToObject(item, "zero_share", share((double)a->zero, (double)a->count));
    add_step(item, lists, &(const double){(double)NAN}, 1);
}

static ab_status add_params(writer *w) {
    for (int i = 0; i < w->last->moment_count; i++) {
        const ab_checkpoint_moments *m = &w->last->moments[i];
        ab_checkpoint_account a;
        AB_TRY(ab_checkpoint_account_of(w->last, i, &a));
        w->zero += a.zero;
        w->below_eps += a.below_eps;
        w->elements += a.count;
        w->lost += a.lost;
        w->nonzero += a.nonzero;
        w->by_shape += m->pairing == AB_CHECKPOINT_BY_SHAPE;
        if (i < MOST_PARAMS) add_state(w, m, &a);
        if (i < MOST_PARAMS && a.judged) add_ledger(w, m, &a);
    }
    return AB_OK;
}

/* ---- the cell -------------------------------------------------------------------------------- */

static double steps_of(const ab_checkpoint *c) { return c->steps >= 1 ? floor(c->steps) : 1; }

static double skipped_of(const ab_checkpoint *c) {
    return c->skipped >= 0 ? fmin(floor(c->skipped), steps_of(c)) : 0;
}

static bool has_scale(const ab_checkpoint *c) { return c->scale > 0; }

static void add_policy(const writer *w) {
    const ab_format *weights = ab_checkpoint_weights_format(w->last),
                    *moments = ab_checkpoint_moments_format(w->last);
    cJSON *policy = cJSON_AddObjectToObject(w->cell, "policy");
    cJSON_AddItemToObject(policy, "cast_model_type",
                          is_half(weights) ? cJSON_CreateString(weights->name) : cJSON_CreateNull());
    cJSON_AddBoolToObject(policy, "patch_torch_functions", !is_half(weights) && has_scale(w->last));
    cJSON_AddNullToObject(policy, "keep_batchnorm_fp32");
    cJSON_AddItemToObject(policy, "master_weights",
                          is_half(weights) ? cJSON_CreateBool(w->last->layout->masters) : cJSON_CreateNull());
    if (has_scale(w->last))
        cJSON_AddStringToObject(policy, "loss_scale", "dynamic");
    else
        cJSON_AddNumberToObject(policy, "loss_scale", 1);
    if (is_half(moments)) cJSON_AddStringToObject(policy, "optimizer_state", moments->name);
}

static void add_steps(const writer *w) {
    const double steps = steps_of(w->last), skipped = skipped_of(w->last);
    cJSON_AddNumberToObject(w->cell, "steps_total", steps);
    cJSON_AddNumberToObject(w->cell, "steps_applied", steps - skipped);
    cJSON_AddNumberToObject(w->cell, "steps_skipped", skipped);
    const double run[] = {has_scale(w->last) ? w->last->scale : 1, steps};
    cJSON *scales = cJSON_AddArrayToObject(w->cell, "scale");
    cJSON_AddItemToArray(scales, cJSON_CreateDoubleArray(run, 2));
}

static ab_status add_probes(writer *w) {
    cJSON *probes = cJSON_AddObjectToObject(w->cell, "probes"), *state;
    cJSON_AddNumberToObject(probes, "every", 1);
    cJSON_AddNumberToObject(probes, "steps_probed", 1);
    cJSON_AddStringToObject(probes, "format", w->half->name);
    cJSON_AddArrayToObject(probes, "tensors");
    w->ledgers = cJSON_CreateArray();
    state = cJSON_CreateObject();
    cJSON_AddBoolToObject(state, "applies", is_half(ab_checkpoint_moments_format(w->last)));
    cJSON_AddNumberToObject(state, "rms_limit", 1);
    cJSON_AddArrayToObject(state, "constants");
    w->params = cJSON_AddArrayToObject(state, "params");
    const ab_status status = add_params(w);
    if (w->last->moment_count > 0)
        cJSON_AddItemToObject(probes, "adam_warning", state);
    else
        cJSON_Delete(state);
    if (cJSON_GetArraySize(w->ledgers) > 0)
        cJSON_AddItemToObject(probes, "lost_updates", w->ledgers);
    else
        cJSON_Delete(w->ledgers);
    return status;
}

static void add_summary(const writer *w) {
    static const char *const keys[] = {"loss_final",          "loss_gap",
                                       "step_time_ns",        "step_time_ns_low",
                                       "step_time_ns_high",   "samples_per_s",
                                       "ratio_samples_to_o0", "peak_bytes",
                                       "ratio_bytes_to_o0",   "skipped_share",
                                       "flushed_share",       "overflowed",
                                       "worst_layer",         "worst_layer_flushed_share"};
    cJSON *summary = cJSON_AddObjectToObject(w->cell, "summary"), *certificate;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) cJSON_AddNullToObject(summary, keys[i]);
    cJSON_AddBoolToObject(summary, "flushed_modelled", true);
    certificate = cJSON_AddObjectToObject(summary, "certificate");
    cJSON_AddBoolToObject(certificate, "passed", false);
    add_list(certificate, "reasons", "a checkpoint has no losses");
}

static ab_status add_cell(writer *w) {
    char id[NAME], clean[NAME];
    cJSON *cells = cJSON_AddArrayToObject(w->document, "cells");
    w->cell = cJSON_CreateObject();
    cJSON_AddItemToArray(cells, w->cell);
    ab_text_show(id, sizeof id, "%s", ab_text_clean(clean, sizeof clean, w->last->path));
    cJSON_AddStringToObject(w->cell, "id", id);
    cJSON_AddStringToObject(w->cell, "observed_by", "checkpoint");
    cJSON_AddStringToObject(w->cell, "model", w->last->layout->name);
    cJSON_AddStringToObject(w->cell, "level", "unknown");
    cJSON_AddStringToObject(w->cell, "scale_policy", has_scale(w->last) ? "dynamic" : "1");
    cJSON_AddStringToObject(w->cell, "half_format", w->half->name);
    cJSON_AddStringToObject(w->cell, "device", "unknown");
    cJSON_AddNumberToObject(w->cell, "seed", 0);
    cJSON_AddNullToObject(w->cell, "twin");
    cJSON_AddStringToObject(w->cell, "status", "ok");
    cJSON_AddNullToObject(w->cell, "reason");
    add_policy(w);
    add_steps(w);
    AB_TRY(add_probes(w));
    add_summary(w);
    return AB_OK;
}

/* ---- what only a checkpoint tells ------------------------------------------------------------ */

static ab_status add_motion(const writer *w, cJSON *own) {
    ab_checkpoint_motion motion;
    if (!w->first) return AB_OK;
    AB_TRY(ab_checkpoint_motion_of(w->first, w->last, &motion));
    cJSON *since = cJSON_AddObjectToObject(own, "since");
    add_name(since, "path", w->first->path);
    cJSON_AddNumberToObject(since, "steps", fmax(0, steps_of(w->last) - steps_of(w->first)));
    cJSON_AddNumberToObject(since, "elements", (double)motion.elements);
    cJSON_AddNumberToObject(since, "moved", (double)motion.moved);
    cJSON_AddNumberToObject(since, "tensors", motion.tensors);
    cJSON_AddNumberToObject(since, "tensors_still", motion.still);
    return AB_OK;
}

/* Those that sets are made of count. */
static int files_of(const ab_checkpoint *c) {
    int files = 0;
    for (int i = 0; i < c->files; i++) files += ab_tensorfile_files(c->file[i]);
    return files;
}

static ab_status add_own(const writer *w) {
    const ab_checkpoint *c = w->last;
    int64_t beyond, nonfinite, elements = 0;
    AB_TRY(ab_checkpoint_beyond_half(c, &beyond, &nonfinite));
    for (int i = 0; i < c->weights; i++) elements += c->weight[i].entry->count;
    cJSON *own = cJSON_AddObjectToObject(w->document, "checkpoint");
    cJSON_AddStringToObject(own, "layout", c->layout->name);
    cJSON_AddNumberToObject(own, "files", files_of(c));
    add_measure(own, "steps", c->steps);
    add_measure(own, "steps_skipped", c->skipped);
    cJSON_AddStringToObject(own, "weights_format", format_name(ab_checkpoint_weights_format(c)));
    cJSON_AddNumberToObject(own, "weights", (double)elements);
    cJSON_AddNumberToObject(own, "weights_beyond_fp16", (double)beyond);
    cJSON_AddNumberToObject(own, "weights_nonfinite", (double)nonfinite);
    cJSON_AddStringToObject(own, "moments_format", format_name(ab_checkpoint_moments_format(c)));
    cJSON_AddNumberToObject(own, "moments", (double)w->elements);
    cJSON_AddNumberToObject(own, "moments_zero", (double)w->zero);
    cJSON_AddNumberToObject(own, "moments_below_eps", (double)w->below_eps);
    cJSON_AddNumberToObject(own, "updates", (double)w->nonzero);
    cJSON_AddNumberToObject(own, "updates_lost", (double)w->lost);
    cJSON_AddNumberToObject(own, "paired_by_shape", w->by_shape);
    add_measure(own, "lr", c->groups > 0 ? c->group[0].lr : (double)NAN);
    add_measure(own, "scale", c->scale);
    add_measure(own, "growth_tracker", c->tracker);
    return add_motion(w, own);
}

/* ---- the document ---------------------------------------------------------------------------- */

static void add_run(const writer *w) {
    static const char *const texts[] = {"git_sha", "onednn_version"};
    cJSON *generator = cJSON_AddObjectToObject(w->document, "generator"), *run;
    cJSON_AddStringToObject(generator, "name", "ampbench diagnose");
    cJSON_AddStringToObject(generator, "version", "");
    for (size_t i = 0; i < AB_COUNT_OF(texts); i++) cJSON_AddNullToObject(generator, texts[i]);
    cJSON_AddBoolToObject(generator, "git_dirty", false);
    cJSON_AddStringToObject(generator, "build_type", "");
    cJSON_AddStringToObject(generator, "compiler", "");
    cJSON_AddStringToObject(generator, "flags", "");
    run = cJSON_AddObjectToObject(w->document, "run");
    cJSON_AddStringToObject(run, "id", "checkpoint");
    cJSON_AddStringToObject(run, "started_utc", "");
    cJSON_AddNullToObject(run, "finished_utc");
    add_list(run, "argv", NULL);
    cJSON_AddBoolToObject(run, "complete", true);
    cJSON_AddNullToObject(run, "exit_status");
    cJSON_AddNullToObject(run, "elapsed_s");
}

static void add_config(const writer *w) {
    const ab_checkpoint *c = w->last;
    cJSON *config = cJSON_AddObjectToObject(w->document, "config"), *design, *order;
    cJSON_AddStringToObject(config, "net", c->layout->name);
    add_list(config, "levels", "unknown");
    add_list(config, "scales", has_scale(c) ? "dynamic" : "1");
    add_list(config, "half", w->half->name);
    cJSON_AddStringToObject(config, "device", "unknown");
    cJSON_AddNumberToObject(config, "steps", steps_of(c));
    if (c->groups > 0) {
        add_measure(config, "lr", c->group[0].lr);
        add_measure(config, "eps", c->group[0].eps);
        add_measure(config, "beta1", c->group[0].beta1);
        add_measure(config, "beta2", c->group[0].beta2);
        add_measure(config, "weight_decay", c->group[0].weight_decay);
    }
    cJSON_AddNumberToObject(config, "rounds", 1);
    cJSON_AddNumberToObject(config, "probe_every", 1);
    if (has_scale(c)) cJSON_AddNumberToObject(config, "scale_window", default_growth);
    cJSON_AddBoolToObject(config, "noise_floor", false);
    design = cJSON_AddObjectToObject(w->document, "design");
    cJSON_AddNumberToObject(design, "rounds", 1);
    cJSON_AddNumberToObject(design, "order_seed", 0);
    order = cJSON_AddArrayToObject(design, "order");
    cJSON_AddItemToArray(order, cJSON_CreateIntArray((const int[]){0}, 1));
}

static void add_network(const writer *w) {
    double elements = 0;
    cJSON *network = cJSON_AddObjectToObject(w->document, "network");
    for (int i = 0; i < w->last->weights; i++) elements += (double)w->last->weight[i].entry->count;
    cJSON_AddStringToObject(network, "name", w->last->layout->name);
    cJSON_AddStringToObject(network, "text", "weights of a checkpoint");
    cJSON_AddNumberToObject(network, "parameters_count", elements);
}

static void add_warnings(const writer *w, int64_t beyond) {
    char text[NAME];
    cJSON *warnings = add_list(w->document, "warnings", NULL);
    if (beyond == 0) return;
    ab_text_show(text, sizeof text, "%.0f weights are beyond the range of fp16: in fp16 they would be inf",
                 (double)beyond);
    cJSON_AddItemToArray(warnings, cJSON_CreateString(text));
}

static ab_status fill(writer *w) {
    cJSON_AddStringToObject(w->document, "schema", "ampbench-result");
    cJSON_AddStringToObject(w->document, "schema_version", "1.0.0");
    add_run(w);
    add_config(w);
    add_network(w);
    AB_TRY(add_cell(w));
    cJSON_AddNullToObject(w->document, "noise_floor");
    AB_TRY(add_own(w));
    add_warnings(w, (int64_t)ab_json_number(w->document, "checkpoint.weights_beyond_fp16", 0));
    AB_TRY(ab_result_check(w->document, w->last->path));
    return ab_result_summarise(w->document);
}

ab_status ab_checkpoint_record(const ab_checkpoint *first, const ab_checkpoint *last, cJSON **document) {
    const ab_format *weights = ab_checkpoint_weights_format(last),
                    *moments = ab_checkpoint_moments_format(last);
    writer w = {.first = first,
                .last = last,
                .half = is_half(weights)   ? weights
                        : is_half(moments) ? moments
                                           : &ab_format_fp16,
                .document = cJSON_CreateObject()};
    if (!w.document) return ab_fail(AB_NO_MEMORY, "%s: out of memory", last->path);
    const ab_status status = fill(&w);
    if (status == AB_OK)
        *document = w.document;
    else
        cJSON_Delete(w.document);
    return status;
}
