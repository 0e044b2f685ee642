/* FNV-1a 64 (Fowler, Noll, Vo; RFC 9923). */
#include "bench/run/config/digest.h"

#include "bench/amp/layer_formats.h"
#include "bench/run/config/cells.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ab_digest ab_digest_start(void) { return (ab_digest){0xCBF29CE484222325u}; }

ab_digest ab_digest_add(ab_digest digest, const void *bytes, size_t count) {
    const unsigned char *next = bytes;
    for (size_t i = 0; i < count; i++) digest.state = (digest.state ^ next[i]) * 0x100000001B3u;
    return digest;
}

const char *ab_digest_text(ab_digest digest, char text[17]) {
    ab_text_exact(text, 17, "%016" PRIx64, digest.state);
    return text;
}

/* The digest of a cell's resolved configuration: every setting that changes what the cell computes, once, as
 * "key=value" lines in a fixed order. Numbers are written exactly (%a). A new setting of training needs a
 * line here. */

static void add_text(ab_digest *digest, const char *key, const char *value) {
    *digest = ab_digest_add(*digest, key, strlen(key));
    *digest = ab_digest_add(*digest, "=", 1);
    *digest = ab_digest_add(*digest, value, strlen(value));
    *digest = ab_digest_add(*digest, "\n", 1);
}

static void add_number(ab_digest *digest, const char *key, double value) {
    char text[40];
    add_text(digest, key, ab_text_exact(text, sizeof text, "%a", value));
}

static void add_integer(ab_digest *digest, const char *key, int64_t value) {
    char text[24];
    add_text(digest, key, ab_text_exact(text, sizeof text, "%" PRId64, value));
}

static void add_format(ab_digest *digest, const char *key, const ab_format *format) {
    add_text(digest, key, format ? format->name : "");
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The file's bytes, and the changes that options made to the network. */
static void add_net(ab_digest *digest, const ab_net *net) {
    add_text(digest, "net", net->name);
    add_text(digest, "net_digest", net->digest);
    for (int i = 0; i < net->ops; i++)
        if (ab_net_op_frozen(&net->op[i])) add_text(digest, "frozen", net->op[i].name);
    for (int i = 0; i < net->ops; i++)
        if (net->op[i].accumulate_half) add_text(digest, "accumulate", net->op[i].name);
}

static ab_status add_layers(ab_digest *digest, const ab_run_config *config, const ab_cell_spec *cell) {
    if (!cell->policy.layers) return AB_OK;
    const ab_net *net = config->net;
    ab_layer_format *own = calloc((size_t)net->ops + 1, sizeof *own);
    if (!own) return ab_fail(AB_NO_MEMORY, "--to: out of memory");
    ab_status status = ab_layer_formats(cell->policy.layers, net, cell->half, own);
    for (int i = 0; i < net->ops && status == AB_OK; i++) {
        if (own[i].whole) add_text(digest, net->op[i].name, own[i].whole->name);
        for (int r = 0; r < AB_LAYER_ROLES; r++) {
            if (!own[i].role[r]) continue;
            add_text(digest, net->op[i].name, ab_layer_role_name((ab_layer_role)r));
            add_format(digest, "role", own[i].role[r]);
        }
    }
    free(own);
    return status;
}

static void add_policy(ab_digest *digest, const ab_cell_spec *cell) {
    const ab_policy *policy = &cell->policy;
    add_text(digest, "level", cell->level->name);
    add_format(digest, "half", cell->half);
    add_integer(digest, "cast_model_type", policy->cast_model_type);
    add_integer(digest, "patch_torch_functions", policy->patch_torch_functions);
    add_integer(digest, "keep_batchnorm_fp32", policy->keep_batchnorm_fp32);
    add_integer(digest, "master_weights", policy->master_weights);
    add_integer(digest, "list", policy->list);
    add_integer(digest, "weights_read_as_half", policy->weights_read_as_half);
    add_integer(digest, "cast_model_outputs", policy->cast_model_outputs);
    add_integer(digest, "batch_norm_statistics", policy->batch_norm_statistics);
    add_integer(digest, "num_losses", policy->num_losses);
    add_integer(digest, "enabled", policy->enabled);
    add_format(digest, "state_format", policy->keep.state_format);
    add_format(digest, "ema_format", policy->keep.ema_format);
    if (policy->keep.fp32_masters) add_integer(digest, "masters_from", 1);
}

static void add_scaler(ab_digest *digest, const ab_run_config *config, const ab_scaler_config *given) {
    const ab_scaler_config scaler = ab_scaler_limited(given, config->min_loss_scale, config->max_loss_scale,
                                                      (double)config->scale_window);
    add_text(digest, "scaler", scaler.kind->name);
    for (int i = 0; i < scaler.kind->keys; i++) add_number(digest, scaler.kind->key[i].name, scaler.value[i]);
    add_integer(digest, "python_ints", scaler.integral & scaler.kind->python);
}

static void add_optimizer(ab_digest *digest, const ab_run_config *config) {
    const ab_optimizer_config *optim = &config->optim;
    const double values[] = {
        optim->lr,    optim->momentum, optim->dampening, optim->weight_decay, optim->beta1,
        optim->beta2, optim->eps,      optim->alpha,     optim->lr_decay,     optim->trust_coefficient};
    add_text(digest, "optimizer", config->optimizer->name);
    for (size_t i = 0; i < AB_COUNT_OF(values); i++) add_number(digest, "optim", values[i]);
    for (int i = 0; i < config->optimizer->keys; i++)
        add_number(digest, config->optimizer->key[i].name, optim->value[i]);
}

static void add_schedule(ab_digest *digest, const ab_recipe *recipe) {
    const ab_schedule_config *rates = &recipe->rates;
    const double values[] = {(double)rates->total, (double)rates->warmup,
                             rates->warmup_start,  (double)rates->step_size,
                             rates->gamma,         rates->final,
                             rates->power,         rates->pct_start,
                             rates->div_factor,    rates->final_div_factor,
                             rates->base_momentum, rates->max_momentum};
    add_text(digest, "schedule", recipe->schedule ? recipe->schedule->name : "");
    for (size_t i = 0; i < AB_COUNT_OF(values); i++) add_number(digest, "rates", values[i]);
    if (rates->warmup_shift) add_integer(digest, "warmup_shift", rates->warmup_shift);
    add_integer(digest, "schedule_on_skip", recipe->schedule_on_skip);
}

/* Nothing for one rank, so that digests of runs without ranks stay. */
static void add_ranks(ab_digest *digest, const ab_rank_recipe *ranks) {
    char text[AB_REDUCTION_TEXT];
    if (ranks->count < 2) return;
    add_integer(digest, "ranks", ranks->count);
    add_text(digest, "reduce", ab_reduction_scheme_text(&ranks->reduction, text));
    add_text(digest, "wire", ranks->reduction.wire ? ranks->reduction.wire->name : "as-is");
    add_text(digest, "divide", ab_reduction_divide_text(&ranks->reduction, text));
    add_number(digest, "bucket_bytes", ranks->bucket_bytes);
    if (ranks->every != AB_REDUCE_STEP)
        add_text(digest, "reduce_every", ab_reduction_every_text(ranks->every));
    if (ranks->sync_bn) add_integer(digest, "sync_bn", ranks->sync_bn);
    if (ranks->last_samples) add_integer(digest, "last_rank_samples", ranks->last_samples);
}

static void add_recipe(ab_digest *digest, const ab_recipe *recipe) {
    add_schedule(digest, recipe);
    add_number(digest, "clip_norm", recipe->clip.norm);
    add_number(digest, "clip_value", recipe->clip.value);
    add_integer(digest, "micro_batches", recipe->micro_batches > 1 ? recipe->micro_batches : 1);
    add_ranks(digest, &recipe->ranks);
    add_number(digest, "ema", recipe->ema_decay);
    add_integer(digest, "faults", recipe->faults);
    for (int i = 0; i < recipe->groups.count; i++) {
        add_text(digest, "group", recipe->groups.group[i].pattern);
        add_number(digest, "lr_factor", recipe->groups.group[i].lr_factor);
        add_number(digest, "weight_decay", recipe->groups.group[i].weight_decay);
    }
}

/* The contents of the samples, not their location: a copy in another folder is the same data. Procedural data
 * depend on their seed, which their origin contains. */
static void add_data(ab_digest *digest, const ab_run_config *config) {
    static const char procedural[] = "procedural";
    const ab_data *data = config->data;
    if (!data) {
        add_text(digest, "data", config->data_name ? config->data_name : "");
        return;
    }
    add_text(digest, "data", data->name);
    if (strncmp(data->origin, procedural, sizeof procedural - 1) == 0)
        add_text(digest, "origin", data->origin);
    for (int s = 0; s < 2; s++) add_integer(digest, "count", data->split[s].count);
    for (int i = 0; i < data->shape.x.ndim; i++) add_integer(digest, "dim", data->shape.x.dim[i]);
    add_integer(digest, "classes", data->classes);
    add_number(digest, "mean", data->mean);
    add_number(digest, "std", data->std);
}

/* ---- digest -------------------------------------------------------------------------------- */

/* Only what differs from black borders of the needed size, the default. */
static void add_pixels(ab_digest *digest, const ab_run_config *config) {
    const ab_pixels *pixels = &config->pixels;
    add_integer(digest, "normalize", config->normalize);
    for (int c = 0; c < pixels->channels; c++) {
        add_number(digest, "mean", pixels->mean[c]);
        add_number(digest, "std", pixels->std[c]);
    }
    if (pixels->zero_border) add_integer(digest, "zero_border", pixels->pad);
}

ab_status ab_cell_digest(const ab_run_config *config, const ab_cell_spec *cell, char digest[17]) {
    ab_digest sum = ab_digest_start();
    add_net(&sum, config->net);
    AB_TRY(add_layers(&sum, config, cell));
    add_policy(&sum, cell);
    add_scaler(&sum, config, &cell->policy.loss_scale.scaler);
    add_optimizer(&sum, config);
    add_recipe(&sum, &config->recipe);
    add_data(&sum, config);
    add_integer(&sum, "batch", config->batch);
    add_integer(&sum, "steps", config->steps);
    add_integer(&sum, "first_step", config->first_step);
    add_pixels(&sum, config);
    add_integer(&sum, "shuffled", config->shuffled);
    add_integer(&sum, "accumulate_half", config->accumulate_half);
    add_integer(&sum, "cpu_path", config->path);
    add_integer(&sum, "tf32", cell->policy.tf32);
    if (config->flush_denormal) add_integer(&sum, "flush_denormal", 1);
    if (config->optim.by_op) add_integer(&sum, "optimizer_by_op", 1);
    if (config->clip_format) add_integer(&sum, "clip_norm_format", config->clip_format);
    add_text(&sum, "init", config->init_file ? config->init_file : "");
    add_text(&sum, "init_map", config->init_map ? config->init_map : "");
    add_text(&sum, "resume_from", config->resume_file ? config->resume_file : "");
    add_text(&sum, "device", config->device->name);
    add_integer(&sum, "seed", (int64_t)cell->seed);
    add_integer(&sum, "ulp_twin", cell->perturbation == AB_PERTURB_ULP);
    if (cell->perturbation == AB_PERTURB_ROUNDING) add_text(&sum, "rounding_twin", cell->half->name);
    if (cell->draw > 0) add_integer(&sum, "draw", cell->draw);
    ab_digest_text(sum, digest);
    return AB_OK;
}
