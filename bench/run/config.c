/* From option texts to checked values. Every check that needs no training happens here, before anything is
 * written. */
#define _GNU_SOURCE
#include "bench/run/config.h"

#include "bench/run/needs.h"

#include "bench/amp/layer_formats.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/number.h"
#include "kernels/core/parallel.h"
#include "kernels/core/power_range.h"
#include "kernels/core/subnormals.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/mpi/mpi.h"
#include "probes/probe.h"
#include "reports/stats/chance.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers and lists ----------------------------------------------------------------------- */

static ab_status parse_integer(const ab_options *options, ab_option_id id, int64_t low, int64_t high,
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

static ab_status parse_real(const ab_options *options, ab_option_id id, double low, double high,
                            double *value) {
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

/* Index of the option's text among `names`. */
static ab_status parse_choice(const ab_options *options, ab_option_id id, const char *const *names, int count,
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
static ab_status parse_list(const ab_options *options, ab_option_id id, ab_run_config *config,
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

static ab_status take_probe(ab_run_config *config, const char *item) {
    int index;
    if (strcmp(item, "default") == 0)
        config->probes |= ab_probes_standard();
    else if (strcmp(item, "all") == 0)
        config->probes |= ab_probes_all();
    else if (ab_probe_find(item, &index) != AB_OK)
        return ab_fail_prefix(AB_USAGE, "--probes");
    else
        config->probes |= (uint64_t)1 << index;
    return AB_OK;
}

/* ---- groups of options ----------------------------------------------------------------------- */

static ab_status take_choices(const ab_options *options, ab_run_config *config) {
    static const char *const orders[] = {"sequential", "shuffled"};
    static const char *const maths[] = {"ieee", "tf32"};
    static const char *const accumulators[] = {"fp32", "half"};
    static const char *const paths[] = {"auto", "native", "convert", "reference"};
    static const char *const states[] = {"weights", "fp32", "half"}, *const averages[] = {"fp32", "half"};
    static const char *const norms[] = {"gradients", "fp32", "half"};
    int choice = 0;
    AB_TRY(parse_choice(options, AB_OPTION_order, orders, 2, &choice));
    config->shuffled = choice == 1;
    AB_TRY(parse_choice(options, AB_OPTION_accumulate, accumulators, 2, &choice));
    config->accumulate_half = choice == 1;
    AB_TRY(parse_choice(options, AB_OPTION_optimizer_state, states, 3, &config->state_format));
    AB_TRY(parse_choice(options, AB_OPTION_ema_format, averages, 2, &choice));
    config->ema_half = choice == 1;
    AB_TRY(parse_choice(options, AB_OPTION_clip_norm_format, norms, 3, &config->clip_format));
    AB_TRY(parse_choice(options, AB_OPTION_cpu_path, paths, 4, &choice));
    config->path = (ab_cpu_path)choice;
    AB_TRY(parse_choice(options, AB_OPTION_math, maths, 2, &choice));
    config->tf32 = choice == 1;
    if (options->text[AB_OPTION_pad]) AB_TRY(ab_pixels_pad(options->text[AB_OPTION_pad], &config->pixels));
    return ab_pixels_normalize(options->text[AB_OPTION_normalize], &config->normalize, &config->pixels);
}

/* Rejects a parameter that the optimizer's formula does not have: it would have no effect. */
static ab_status check_knobs(const ab_options *options, const ab_optimizer *optimizer) {
    static const struct {
        ab_option_id id;
        unsigned knob;
    } rows[] = {
        {AB_OPTION_momentum, AB_KNOB_MOMENTUM}, {AB_OPTION_dampening, AB_KNOB_DAMPENING},
        {AB_OPTION_beta1, AB_KNOB_BETA1},       {AB_OPTION_beta2, AB_KNOB_BETA2},
        {AB_OPTION_eps, AB_KNOB_EPS},           {AB_OPTION_alpha, AB_KNOB_ALPHA},
        {AB_OPTION_lr_decay, AB_KNOB_LR_DECAY}, {AB_OPTION_trust_coefficient, AB_KNOB_TRUST_COEFFICIENT}};
    char name[AB_OPTION_NAME], list[256] = "--lr, --weight-decay";
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        if (!(optimizer->knobs & rows[i].knob)) continue;
        ab_text_append(list, sizeof list, ", %s", ab_option_name(rows[i].id, name));
    }
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        if (options->given[rows[i].id] && !(optimizer->knobs & rows[i].knob))
            return ab_fail(AB_USAGE, "%s: optimizer %s has no such number; it has %s",
                           ab_option_name(rows[i].id, name), optimizer->name, list);
    return AB_OK;
}

/* torch holds state in the type of the weights, and rounds it with them. */
static ab_status take_rounding(const ab_options *options, ab_run_config *config) {
    static const char *const when[] = {"step", "op"};
    int choice = 0;
    AB_TRY(parse_choice(options, AB_OPTION_optimizer_rounding, when, 2, &choice));
    config->optim.by_op = choice == 1;
    if (choice == 1 && !config->optimizer->update_by_op)
        return ab_fail(
            AB_USAGE,
            "--optimizer-rounding op: not for optimizer %s; expected sgd, momentum, nesterov, adam "
            "or adamw",
            config->optimizer->name);
    return AB_OK;
}

static ab_status take_optimizer(const ab_options *options, ab_run_config *config) {
    const char *chosen = options->text[AB_OPTION_optimizer];
    const char *name = chosen ? chosen : config->net->defaults.optimizer;
    ab_optimizer_config *optim = &config->optim;
    AB_TRY(ab_optimizer_parse(name, &config->optimizer, optim));
    AB_TRY(check_knobs(options, config->optimizer));
    if (!chosen || strcmp(config->optimizer->name, config->net->defaults.optimizer) == 0)
        optim->lr = config->net->defaults.lr;
    AB_TRY(parse_real(options, AB_OPTION_lr, 0, 1e9, &optim->lr));
    AB_TRY(parse_real(options, AB_OPTION_momentum, 0, 1, &optim->momentum));
    AB_TRY(parse_real(options, AB_OPTION_dampening, 0, 1, &optim->dampening));
    AB_TRY(parse_real(options, AB_OPTION_weight_decay, 0, 1e9, &optim->weight_decay));
    AB_TRY(parse_real(options, AB_OPTION_beta1, 0, 1, &optim->beta1));
    AB_TRY(parse_real(options, AB_OPTION_beta2, 0, 1, &optim->beta2));
    AB_TRY(parse_real(options, AB_OPTION_alpha, 0, 1, &optim->alpha));
    AB_TRY(parse_real(options, AB_OPTION_lr_decay, 0, 1e9, &optim->lr_decay));
    AB_TRY(parse_real(options, AB_OPTION_trust_coefficient, 0, 1e9, &optim->trust_coefficient));
    AB_TRY(take_rounding(options, config));
    return parse_real(options, AB_OPTION_eps, 0, 1e9, &optim->eps);
}

static ab_status take_fault(ab_run_config *config, const char *item) {
    return ab_fault_add(item, &config->recipe.faults);
}

static ab_status take_groups(const ab_options *options, ab_run_config *config) {
    ab_param_groups *groups = &config->recipe.groups;
    const char *no_decay = options->text[AB_OPTION_no_decay], *text = options->text[AB_OPTION_param_groups];
    if (no_decay) AB_TRY(ab_param_groups_no_decay(no_decay, groups));
    if (text) AB_TRY(ab_param_groups_parse(text, groups));
    return ab_param_groups_check(groups, config->net);
}

/* Rejects a fault that would have no effect in this run. */
static ab_status check_faults(const ab_recipe *recipe) {
    const bool clips = recipe->clip.norm > 0 || recipe->clip.value > 0;
    const unsigned of_accumulation = AB_FAULT_unscale_each_micro_batch | AB_FAULT_accumulation_not_averaged;
    if (recipe->faults & AB_FAULT_clip_before_unscale && !clips)
        return ab_fail(AB_USAGE, "--fault clip_before_unscale: nothing is clipped; give --clip-norm or "
                                 "--clip-value");
    if (recipe->faults & AB_FAULT_ranks_weighted_alike && recipe->ranks.last_samples == 0)
        return ab_fail(AB_USAGE, "--fault ranks_weighted_alike: all ranks have as many samples; give "
                                 "--last-rank-samples M");
    if (recipe->faults & AB_FAULT_flipped_bit_on_a_rank && ab_rank_place_get().ranks < 2)
        return ab_fail(AB_USAGE,
                       "--fault flipped_bit_on_a_rank: ranks have weights of their own with --ranks "
                       "mpi only");
    if (recipe->faults & of_accumulation && recipe->micro_batches < 2)
        return ab_fail(AB_USAGE, "--fault: mistakes of accumulation need --gradient-accumulation-steps of 2 "
                                 "or more");
    return AB_OK;
}

/* The reduction of --ddp, or of the options that it stands for. */
static ab_status take_reduction(const ab_options *options, ab_reduction *reduction) {
    const char *const *text = options->text;
    const ab_reduction_preset own = {.reduce = text[AB_OPTION_reduce],
                                     .wire = text[AB_OPTION_reduce_dtype],
                                     .divide = text[AB_OPTION_divide]};
    const ab_reduction_preset *preset = &own;
    const bool *given = options->given;
    if (text[AB_OPTION_ddp]) {
        if (given[AB_OPTION_reduce] || given[AB_OPTION_reduce_dtype] || given[AB_OPTION_divide])
            return ab_fail(AB_USAGE, "--ddp: it states --reduce, --reduce-dtype and --divide; give it alone");
        if (ab_reduction_preset_find(text[AB_OPTION_ddp], &preset) != AB_OK)
            return ab_fail_prefix(AB_USAGE, "--ddp");
    }
    if (ab_reduction_parse_scheme(preset->reduce, reduction) != AB_OK)
        return ab_fail_prefix(AB_USAGE, "--reduce");
    if (ab_reduction_parse_wire(preset->wire, reduction) != AB_OK)
        return ab_fail_prefix(AB_USAGE, "--reduce-dtype");
    if (ab_reduction_parse_divide(preset->divide, reduction) != AB_OK)
        return ab_fail_prefix(AB_USAGE, "--divide");
    return AB_OK;
}

/* --ranks N, or mpi: as many as processes of the MPI job. */
static ab_status take_rank_count(const ab_options *options, int64_t *count) {
    const int ranks = ab_rank_place_get().ranks;
    if (strcmp(options->text[AB_OPTION_ranks], "mpi") != 0)
        return parse_integer(options, AB_OPTION_ranks, 1, AB_RANKS_MOST, count);
    *count = ranks;
    return ranks > 0
               ? AB_OK
               : ab_fail(AB_USAGE, "--ranks mpi: only `ampbench run` trains with processes of an MPI job");
}

/* MPI's own sum is not simulated, and is made in fp32. */
static ab_status check_library_sum(const ab_options *options, ab_reduction *reduction) {
    if (reduction->scheme->reduce) return AB_OK;
    if (strcmp(options->text[AB_OPTION_ranks], "mpi") != 0)
        return ab_fail(AB_USAGE, "--reduce %s: the library's sum is not simulated; give --ranks mpi",
                       reduction->scheme->name);
    if (!reduction->wire) reduction->wire = &ab_format_fp32;
    return reduction->wire == &ab_format_fp32
               ? AB_OK
               : ab_fail(AB_USAGE, "--reduce %s: MPI has no sum of %s; give --reduce-dtype fp32",
                         reduction->scheme->name, reduction->wire->name);
}

static bool has_batch_norm(const ab_net *net) {
    for (int i = 0; i < net->ops; i++)
        if (net->op[i].op->batch_norm) return true;
    return false;
}

static ab_status take_sync_bn(const ab_options *options, const ab_net *net, ab_sync_form *form) {
    static const char *const forms[] = {"torch", "apex"};
    const char *text = options->text[AB_OPTION_sync_bn], *near;
    if (!text) return AB_OK;
    for (size_t i = 0; i < AB_COUNT_OF(forms); i++)
        if (strcmp(text, forms[i]) == 0) *form = (ab_sync_form)(AB_SYNC_TORCH + i);
    near = ab_nearest(text, forms, AB_COUNT_OF(forms));
    if (!*form)
        return ab_fail(AB_USAGE, "--sync-bn: expected torch or apex, found '%s'%s%s%s", text,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return has_batch_norm(net) ? AB_OK : ab_fail(AB_USAGE, "--sync-bn: %s has no batch norm", net->name);
}

static ab_status take_ranks(const ab_options *options, ab_run_config *config) {
    ab_rank_recipe *ranks = &config->recipe.ranks;
    double mebibytes = 25;
    AB_TRY(take_rank_count(options, &ranks->count));
    AB_TRY(take_reduction(options, &ranks->reduction));
    AB_TRY(check_library_sum(options, &ranks->reduction));
    AB_TRY(take_sync_bn(options, config->net, &ranks->sync_bn));
    AB_TRY(parse_real(options, AB_OPTION_bucket_mb, 0x1p-20, 0x1p20, &mebibytes));
    ranks->bucket_bytes = mebibytes * 0x1p20;
    AB_TRY(parse_integer(options, AB_OPTION_last_rank_samples, 1, 1LL << 31, &ranks->last_samples));
    AB_TRY(parse_integer(options, AB_OPTION_check_ranks, 1, 1LL << 40, &ranks->check_every));
    if (options->given[AB_OPTION_check_ranks] && ranks->count > 1 && ab_rank_place_get().ranks == 0)
        return ab_fail(AB_USAGE, "--check-ranks: simulated ranks share one copy of the weights; give --ranks "
                                 "mpi");
    if (ranks->count > 1 && strcmp(config->device->name, "cpu") != 0)
        return ab_fail(AB_USAGE, "--ranks: ranks are simulated on the CPU only, found device %s",
                       config->device->name);
    return AB_OK;
}

/* What is saved is the gradient of one batch on one rank. */
static ab_status check_saved_gradients(const ab_options *options, const ab_run_config *config) {
    if (!options->given[AB_OPTION_save_gradients]) return AB_OK;
    if (config->recipe.micro_batches > 1 || config->recipe.ranks.count > 1)
        return ab_fail(AB_USAGE, "--save-gradients: saves gradients of single batches; give --ranks 1 and "
                                 "--gradient-accumulation-steps 1");
    return strcmp(config->device->name, "cpu") == 0
               ? AB_OK
               : ab_fail(AB_USAGE, "--save-gradients: on the CPU only, found device %s",
                         config->device->name);
}

static ab_status take_files(const ab_options *options, ab_run_config *config) {
    AB_TRY(check_saved_gradients(options, config));
    if (config->init_file && config->resume_file)
        return ab_fail(AB_USAGE, "--init and --resume-from: give one of them");
    return parse_integer(options, AB_OPTION_checkpoint_every, 1, 1LL << 40, &config->checkpoint_every);
}

static ab_status take_recipe(const ab_options *options, ab_run_config *config) {
    ab_recipe *recipe = &config->recipe;
    AB_TRY(ab_schedule_parse(options->text[AB_OPTION_schedule], &recipe->schedule, &recipe->rates));
    recipe->schedule_on_skip = options->given[AB_OPTION_schedule_on_skip];
    recipe->rates.lr = config->optim.lr;
    AB_TRY(parse_real(options, AB_OPTION_clip_norm, 0x1p-126, 1e30, &recipe->clip.norm));
    AB_TRY(parse_real(options, AB_OPTION_clip_value, 0x1p-126, 1e30, &recipe->clip.value));
    AB_TRY(parse_integer(options, AB_OPTION_gradient_accumulation_steps, 1, 1 << 20, &recipe->micro_batches));
    AB_TRY(take_ranks(options, config));
    AB_TRY(take_files(options, config));
    AB_TRY(parse_real(options, AB_OPTION_ema, 0, 1, &recipe->ema_decay));
    if (options->given[AB_OPTION_ema] && (recipe->ema_decay <= 0 || recipe->ema_decay >= 1))
        return ab_fail(AB_USAGE, "--ema: expected a number between 0 and 1, found '%s'",
                       options->text[AB_OPTION_ema]);
    AB_TRY(take_groups(options, config));
    if (options->text[AB_OPTION_fault]) AB_TRY(parse_list(options, AB_OPTION_fault, config, take_fault));
    if (recipe->faults & AB_FAULTS_OF_RESUMING && !config->resume_file)
        return ab_fail(AB_USAGE, "--fault: mistakes of resuming need --resume-from");
    return check_faults(recipe);
}

static ab_status take_scaler(const ab_options *options, ab_run_config *config) {
    AB_TRY(parse_real(options, AB_OPTION_min_loss_scale, 0x1p-126, 0x1p127, &config->min_loss_scale));
    AB_TRY(parse_real(options, AB_OPTION_max_loss_scale, 0x1p-126, 0x1p127, &config->max_loss_scale));
    bool both = config->min_loss_scale > 0 && config->max_loss_scale > 0;
    if (both && config->min_loss_scale > config->max_loss_scale)
        return ab_fail(AB_USAGE, "--min-loss-scale %.9g is above --max-loss-scale %.9g",
                       config->min_loss_scale, config->max_loss_scale);
    return parse_integer(options, AB_OPTION_scale_window, 1, INT64_MAX, &config->scale_window);
}

/* --to names layers of the network, also in items that O0 ignores. */
static ab_status check_layers(const ab_run_config *config) {
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

/* "3%" or "0.03"; 0 to 1. */
static ab_status parse_share(const ab_options *options, ab_option_id id, double *share) {
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

/* --probe-every and --trace fix the interval; without them the governor chooses one. */
static ab_status take_probes(const ab_options *options, ab_run_config *config) {
    bool fixed = options->given[AB_OPTION_probe_every];
    if (fixed && options->given[AB_OPTION_probe_budget])
        return ab_fail(AB_USAGE, "--probe-every fixes what --probe-budget chooses: give one of them");
    config->probe_every = 10;
    AB_TRY(parse_list(options, AB_OPTION_probes, config, take_probe));
    AB_TRY(parse_integer(options, AB_OPTION_probe_every, 0, INT64_MAX, &config->probe_every));
    AB_TRY(parse_share(options, AB_OPTION_probe_budget, &config->probe_budget));
    if (config->probe_budget == 0) config->probe_every = 0;
    if (options->given[AB_OPTION_trace]) {
        int index;
        AB_TRY(ab_probe_find("trace", &index));
        config->probes |= (uint64_t)1 << index;
        if (!fixed) config->probe_every = 1;
        fixed = true;
    }
    if (fixed) config->probe_budget = 0;
    if (config->probe_every == 0) config->probes = 0;
    return AB_OK;
}

static ab_status take_shadow(const ab_options *options, ab_run_config *config) {
    static const char *const kinds[] = {"fp32", "decensor"};
    const char *text = options->text[AB_OPTION_shadow], *near = ab_nearest(text, kinds, 2);
    if (strcmp(text, kinds[0]) != 0 && strcmp(text, kinds[1]) != 0)
        return ab_fail(AB_USAGE, "--shadow: expected fp32 or decensor, found '%s'%s%s%s", text,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    config->shadow = strcmp(text, kinds[0]) == 0 ? AB_REFERENCE_FP32 : AB_REFERENCE_DECENSOR;
    AB_TRY(parse_integer(options, AB_OPTION_shadow_every, 0, INT64_MAX, &config->shadow_every));
    return AB_OK;
}

static int available_threads(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    count /= ab_rank_place_get().ranks > 0 ? ab_mpi_local_ranks() : 1; /* shared by the ranks of a machine */
    return count > 0 ? count : 1;
}

/* "512MiB", "2GB", "1.5GiB" or bytes. */
static ab_status parse_bytes(const ab_options *options, ab_option_id id, int64_t *bytes) {
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

unsigned ab_run_product_formats(const ab_run_config *config) {
    unsigned formats = 1;
    for (int h = 0; h < config->halves; h++) formats |= config->half[h] == &ab_format_bf16 ? 4u : 2u;
    return formats;
}

static ab_status take_profile(const ab_options *options, ab_run_config *config) {
    config->profile = options->given[AB_OPTION_profile];
    if (!config->profile || config->device == &ab_device_cpu) return AB_OK;
    return ab_fail(AB_USAGE, "--profile: times layers on the CPU only; expected --device cpu");
}

static ab_status take_counts(const ab_options *options, ab_run_config *config) {
    int64_t threads = available_threads(), seed = 1, draws = 1;
    config->seeds = 1;
    config->batch = config->net->defaults.batch;
    config->epochs = config->net->defaults.epochs;
    AB_TRY(parse_integer(options, AB_OPTION_batch, 1, 1 << 24, &config->batch));
    AB_TRY(parse_integer(options, AB_OPTION_epochs, 1, 1 << 24, &config->epochs));
    AB_TRY(parse_integer(options, AB_OPTION_seed, 0, (1LL << 53) - 1001, &seed));
    AB_TRY(parse_integer(options, AB_OPTION_seeds, 1, 1000, &config->seeds));
    AB_TRY(parse_integer(options, AB_OPTION_threads, 1, 1024, &threads));
    AB_TRY(parse_bytes(options, AB_OPTION_memory_limit, &config->memory_limit));
    AB_TRY(parse_integer(options, AB_OPTION_rounds, 1, 1000, &config->rounds));
    AB_TRY(parse_integer(options, AB_OPTION_floor_draws, 1, AB_CHANCE_DRAWS_MOST, &draws));
    config->floor_draws = options->given[AB_OPTION_no_floor] ? 0 : (int)draws;
    AB_TRY(parse_integer(options, AB_OPTION_eval_limit, 0, INT64_MAX, &config->eval_limit));
    AB_TRY(parse_integer(options, AB_OPTION_cell_timeout, 0, 1 << 30, &config->cell_timeout_s));
    AB_TRY(parse_integer(options, AB_OPTION_log_every, 1, 1LL << 40, &config->log_every));
    config->seed = (uint64_t)seed;
    config->threads = (int)threads;
    return AB_OK;
}

/* Reads the number of steps done in the checkpoints from that of the first cell. */
static ab_status read_first_step(ab_run_config *config) {
    char path[4096] = "";
    ab_cell_spec *cells = NULL;
    int count = 0;
    if (!config->resume_file) return AB_OK;
    AB_TRY(ab_run_cells(config, &cells, &count));
    ab_status status = AB_OK;
    if (count > 0)
        status = ab_cell_file("--resume-from", config->resume_file, cells[0].id, path, sizeof path);
    ab_run_cells_free(cells, count);
    AB_TRY(status);
    AB_TRY(ab_checkpoint_steps(path, &config->first_step));
    if (config->first_step >= config->steps)
        return ab_fail(AB_USAGE, "--resume-from: %s has done %lld steps, and --steps asks for %lld in all",
                       path, (long long)config->first_step, (long long)config->steps);
    config->steps -= config->first_step;
    return AB_OK;
}

/* Checks and values that depend on the data: classes, batch size, steps per epoch. */
ab_status ab_run_config_steps(const ab_options *options, ab_run_config *config) {
    const ab_data *data = config->data;
    const ab_net *net = config->net;
    if (net->classes > 0 && data->classes > net->classes)
        return ab_fail(AB_CONFIG, "--data %s has %lld classes, network %s has %lld outputs",
                       config->data_name, (long long)data->classes, net->name, (long long)net->classes);
    int64_t count = data->split[AB_SPLIT_TRAIN].count;
    if (config->batch > count)
        return ab_fail(AB_USAGE, "--batch: %lld is larger than the %lld training samples of %s",
                       (long long)config->batch, (long long)count, config->data_name);
    if (config->recipe.ranks.last_samples > config->batch)
        return ab_fail(AB_USAGE,
                       "--last-rank-samples: expected at most the %lld samples of --batch, found %lld",
                       (long long)config->batch, (long long)config->recipe.ranks.last_samples);
    config->steps =
        count / config->batch * config->epochs / config->recipe.micro_batches / config->recipe.ranks.count;
    if (options->text[AB_OPTION_steps]) {
        if (options->given[AB_OPTION_epochs])
            return ab_fail(AB_USAGE, "--steps and --epochs: give one of them");
        config->epochs = 0;
    }
    AB_TRY(parse_integer(options, AB_OPTION_steps, 0, 1LL << 40, &config->steps));
    ab_schedule_config *rates = &config->recipe.rates;
    if (rates->total == 0) rates->total = config->steps;
    AB_TRY(read_first_step(config));
    return config->steps > 0 ? ab_schedule_check(config->recipe.schedule, rates) : AB_OK;
}

/* Without --data: a source that suits the net. */
static void choose_data(const ab_options *options, ab_run_config *config) {
    const char *suitable = ab_data_default(&config->net->data);
    if (!options->given[AB_OPTION_data] && suitable) config->data_name = suitable;
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

static bool has_floors(const ab_run_config *config) {
    for (int l = 0; l < config->levels && config->floor_draws > 0; l++)
        if (ab_level_is_reference(config->level[l])) return true;
    return false;
}

static ab_status check_needs(const ab_options *options, const ab_run_config *config) {
    const bool probed = config->probe_every > 0;
    const ab_run_has has = {.init = config->init_file != NULL,
                            .schedule = strcmp(options->text[AB_OPTION_schedule], "constant") != 0,
                            .weight_decay =
                                config->optim.weight_decay != 0 || options->given[AB_OPTION_param_groups],
                            .clip_norm = config->recipe.clip.norm > 0,
                            .ema = config->recipe.ema_decay > 0,
                            .ranks = config->recipe.ranks.count > 1 || ab_rank_place_get().ranks > 0,
                            .probes = probed || strcmp(options->text[AB_OPTION_probes], "default") == 0,
                            .trace = probed,
                            .shadow = options->given[AB_OPTION_shadow_every],
                            .floors = has_floors(config)};
    return ab_needs_check(options, &has);
}

static ab_status open_data(const ab_options *options, ab_run_config *config) {
    AB_TRY(ab_data_open(config->data_name, &config->net->data, config->seed, &config->data));
    AB_TRY(ab_data_preprocess(config->data, &config->pixels));
    return ab_run_config_steps(options, config);
}

/* Without training the data is opened only if an option speaks of its images, and closed again. */
static ab_status check_data(const ab_options *options, ab_run_config *config) {
    const bool images = config->pixels.padded || config->pixels.channels > 0;
    if (!images)
        return options->given[AB_OPTION_data] ? ab_data_check(config->data_name, &config->net->data) : AB_OK;
    AB_TRY(ab_data_open(config->data_name, &config->net->data, config->seed, &config->data));
    AB_TRY(ab_data_preprocess(config->data, &config->pixels));
    ab_data_close(config->data);
    config->data = NULL;
    return AB_OK;
}

ab_status ab_run_config_create(const ab_options *options, bool with_data, ab_run_config *config) {
    *config = (ab_run_config){.data_name = options->text[AB_OPTION_data],
                              .init_file = options->text[AB_OPTION_init],
                              .init_map = options->text[AB_OPTION_init_map],
                              .no_graph = options->given[AB_OPTION_no_graph],
                              .flush_denormal = options->given[AB_OPTION_flush_denormal],
                              .resume_file = options->text[AB_OPTION_resume_from]};
    ab_status status = AB_OK;
    if (config->flush_denormal && !ab_subnormals_can_flush())
        AB_TRY_GOTO(ab_fail(AB_UNAVAILABLE,
                            "--flush-denormal: this processor cannot take subnormal numbers as "
                            "zeros; expected x86-64 with SSE3, or aarch64"));
    AB_TRY_GOTO(parse_list(options, AB_OPTION_levels, config, take_level));
    AB_TRY_GOTO(take_level_options(options, config));
    AB_TRY_GOTO(parse_list(options, AB_OPTION_scales, config, take_scale));
    AB_TRY_GOTO(parse_list(options, AB_OPTION_half, config, take_half));
    AB_TRY_GOTO(take_choices(options, config));
    AB_TRY_GOTO(take_scaler(options, config));
    AB_TRY_GOTO(ab_device_open(options->text[AB_OPTION_device], &config->device, &config->why_not_gpu));
    if (config->tf32 && strncmp(config->device->name, "cuda", 4) != 0)
        AB_TRY_GOTO(
            ab_fail(AB_USAGE, "--math tf32: only GPUs have TF32, this run is on %s", config->device->name));
    AB_TRY_GOTO(ab_net_load(options->text[AB_OPTION_net], &config->net));
    if (options->given[AB_OPTION_freeze_bn] && ab_net_freeze(config->net) == 0)
        AB_TRY_GOTO(ab_fail(AB_USAGE, "--freeze-bn: network %s has no batch norms", config->net->name));
    if (options->given[AB_OPTION_accumulate] && !config->accumulate_half) ab_net_accumulate_fp32(config->net);
    AB_TRY_GOTO(check_layers(config));
    choose_data(options, config);
    if (options->text[AB_OPTION_recompute])
        AB_TRY_GOTO(ab_net_recompute(config->net, options->text[AB_OPTION_recompute]));
    AB_TRY_GOTO(take_optimizer(options, config));
    AB_TRY_GOTO(take_recipe(options, config));
    AB_TRY_GOTO(take_counts(options, config));
    AB_TRY_GOTO(take_profile(options, config));
    AB_TRY_GOTO(take_probes(options, config));
    AB_TRY_GOTO(take_shadow(options, config));
    AB_TRY_GOTO(check_needs(options, config));
    AB_TRY_GOTO(with_data ? open_data(options, config) : check_data(options, config));
out:
    if (status != AB_OK) ab_run_config_clear(config);
    return status;
}

ab_status ab_run_config_start(const ab_run_config *config) {
    ab_subnormals_set(config->flush_denormal ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT);
    return ab_parallel_start(config->threads);
}

void ab_run_config_clear(ab_run_config *config) {
    ab_net_free(config->net);
    ab_data_close(config->data);
    config->net = NULL;
    config->data = NULL;
    for (int i = 0; i < config->scales; i++) free(config->scale[i].text);
    free(config->scale);
    config->scale = NULL;
    config->scales = 0;
    for (int l = 0; l < config->levels; l++) ab_level_options_free(&config->own[l]);
    ab_level_options_free(&config->unnamed);
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* --min-loss-scale and the related options must be supported by every dynamic scaler. */
static ab_status check_limits(const ab_run_config *config, const ab_loss_scale *scale) {
    const struct {
        const char *option, *key;
        bool given;
    } limits[] = {{"--min-loss-scale", "min", config->min_loss_scale != 0},
                  {"--max-loss-scale", "max", config->max_loss_scale != 0},
                  {"--scale-window", "window", config->scale_window != 0}};
    for (size_t i = 0; i < AB_COUNT_OF(limits); i++) {
        if (!scale->dynamic || !limits[i].given) continue;
        if (ab_scaler_key_index(scale->scaler.kind, limits[i].key) >= 0) continue;
        return ab_fail(AB_USAGE,
                       "%s: loss scaler %s has no %s; set it where it exists, e.g. --scales dynamic:%s=...",
                       limits[i].option, scale->scaler.kind->name, limits[i].key, limits[i].key);
    }
    return AB_OK;
}

/* Operations on all gradients at once are undefined if each loss has its own scale. */
static ab_status check_own_scales(const ab_run_config *config, const ab_policy *policy) {
    const ab_scaler_kind *kind = policy->loss_scale.scaler.kind;
    const unsigned of_one_scale = AB_FAULT_clip_before_unscale | AB_FAULT_unscale_each_micro_batch;
    if (policy->num_losses <= 1) return AB_OK;
    if (config->recipe.ranks.count > 1)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: gradients that have scales of their own are not reduced "
                       "over ranks; give --ranks 1",
                       policy->num_losses);
    if (kind->sees || kind->updates_first)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: loss scaler %s %s; choose dynamic or another that looks at "
                       "overflows alone",
                       policy->num_losses, kind->name,
                       kind->sees ? "follows the size of all gradients together"
                                  : "divides gradients after its update, all of them by one scale");
    if (config->recipe.faults & of_one_scale)
        return ab_fail(AB_USAGE,
                       "--set num_losses=%d: gradients are unscaled after every loss's backward pass, so "
                       "the mistakes clip_before_unscale and unscale_each_micro_batch cannot be made",
                       policy->num_losses);
    return AB_OK;
}

/* AdaLoss scales the gradient of every layer: rejects configurations it is not defined for. */
static ab_status check_layered(const ab_run_config *config, const ab_format *half, const ab_policy *policy) {
    const ab_scaler_kind *kind = policy->loss_scale.scaler.kind;
    if (!(kind->sees & AB_SEES_LAYER)) return AB_OK;
    if (half != &ab_format_fp16)
        return ab_fail(AB_USAGE,
                       "--scales %s: its range is that of fp16 (the original: ValueError for other formats); "
                       "give --half "
                       "fp16",
                       kind->name);
    if (config->recipe.micro_batches > 1 || config->recipe.ranks.count > 1)
        return ab_fail(
            AB_USAGE,
            "--scales %s: gradients of micro-batches have scales of their own and cannot be summed; give "
            "--gradient-accumulation-steps 1 and --ranks 1",
            kind->name);
    if (config->recipe.faults & AB_FAULT_clip_before_unscale)
        return ab_fail(AB_USAGE, "--scales %s: there is no one scale that clipping could come before",
                       kind->name);
    if (strcmp(config->device->name, "cpu") != 0)
        return ab_fail(AB_USAGE, "--scales %s: on the CPU only, found device %s", kind->name,
                       config->device->name);
    return AB_OK;
}

/* An fp32 reference compares gradients at one scale. */
static ab_status check_shadow(const ab_run_config *config, const ab_policy *policy) {
    const bool layers = policy->loss_scale.scaler.kind->sees & AB_SEES_LAYER;
    if (config->shadow_every == 0 || (policy->num_losses <= 1 && !layers)) return AB_OK;
    return ab_fail(AB_USAGE, "--shadow-every: not where %s",
                   layers ? "layers have scales of their own (adaloss)"
                          : "losses have scales of their own (num_losses)");
}

static ab_status name_cell(const ab_run_config *config, ab_cell_spec *cell) {
    static const char *const suffix[] = {"", "/ulp", "/rounding"};
    char scale[AB_SCALER_TEXT], draw[16] = ""; /* "/ulp", "/ulp2", ... */
    AB_TRY(ab_cell_digest(config, cell, cell->digest));
    if (cell->draw > 0) ab_text_exact(draw, sizeof draw, "%d", cell->draw + 1);
    cell->id =
        ab_text_new("%s/%s/%s/%s/%s/seed%llu%s%s", config->net->name, cell->policy.label,
                    ab_loss_scale_text(&cell->policy.loss_scale, scale), cell->half->name,
                    config->device->name, (unsigned long long)cell->seed, suffix[cell->perturbation], draw);
    return cell->id ? AB_OK : ab_fail(AB_NO_MEMORY, "cells: out of memory");
}

/* The level's properties after the overrides for the entry. Those that the reference ignores are checked all
 * the same.
 */
static ab_status resolve(const ab_run_config *config, const ab_level *level, const ab_level_options *own,
                         const ab_format *half, ab_policy *policy) {
    const ab_level_options *unnamed = &config->unnamed;
    if (ab_level_is_reference(level))
        AB_TRY(ab_policy_resolve(level, half, unnamed->override, unnamed->overrides, policy));
    AB_TRY(ab_policy_resolve_entry(level, half, own->override, own->overrides, own->own, own->owns, policy));
    policy->layers = own->layers;
    return AB_OK;
}

/* Formats of kept state: those of the options, where no override chose them. The reference has fp32 ones. */
static ab_status choose_state(const ab_run_config *config, bool reference, const ab_format *half,
                              ab_keep *keep) {
    const ab_format *const state_formats[] = {NULL, &ab_format_fp32, reference ? NULL : half};
    if (keep->ema_set && !(config->recipe.ema_decay > 0))
        return ab_fail(AB_USAGE, "--set ema_format: no averaged weights are kept; give --ema DECAY");
    keep->micro_batches = config->recipe.micro_batches > 1;
    if (!keep->state_set) keep->state_format = state_formats[config->state_format];
    if (config->optim.by_op && keep->state_format)
        return ab_fail(AB_USAGE,
                       "--optimizer-rounding op: the state has the format of the weights, as in "
                       "torch; leave out its format %s",
                       keep->state_format->name);
    if (!keep->ema_set && config->recipe.ema_decay > 0)
        keep->ema_format = config->ema_half && !reference ? half : &ab_format_fp32;
    return AB_OK;
}

/* O0 is the reference and keeps fp32 products unless named. */
static ab_status choose_math(const ab_run_config *config, bool reference, ab_policy *policy) {
    if (!policy->tf32_set) policy->tf32 = config->tf32 && !reference;
    if (!policy->tf32 || strncmp(config->device->name, "cuda", 4) == 0) return AB_OK;
    return ab_fail(AB_USAGE, "--set math=tf32: only GPUs have TF32, this run is on %s", config->device->name);
}

/* The cell of the entry `l` of --levels, without a name. */
static ab_status make_cell(const ab_run_config *config, int l, const ab_format *half,
                           const ab_scale_choice *choice, ab_perturbation perturbation, ab_cell_spec *cell) {
    const ab_level *level = config->level[l];
    const ab_level_options *own = &config->own[l];
    const bool reference = ab_level_is_reference(level);
    *cell = (ab_cell_spec){
        .level = level, .own = own, .half = half, .perturbation = perturbation, .seed = config->seed};
    AB_TRY(resolve(config, level, own, half, &cell->policy));
    if (!choice->preset && !reference && !own->own_scale) cell->policy.loss_scale = choice->scale;
    AB_TRY(choose_state(config, reference, half, &cell->policy.keep));
    AB_TRY(choose_math(config, reference, &cell->policy));
    AB_TRY(check_limits(config, &cell->policy.loss_scale));
    AB_TRY(check_own_scales(config, &cell->policy));
    AB_TRY(check_layered(config, half, &cell->policy));
    return check_shadow(config, &cell->policy);
}

/* By digest; equal ones in their order. */
static int compare_cells(const void *a, const void *b) {
    const ab_cell_spec *const *x = a, *const *y = b;
    const int order = strcmp((*x)->digest, (*y)->digest);
    return order ? order : (*x > *y) - (*x < *y);
}

/* Removes cells that are the same as an earlier one. */
static ab_status remove_repeats(ab_cell_spec *cells, int *count) {
    int kept = 0;
    ab_cell_spec **sorted = calloc((size_t)*count + 1, sizeof(ab_cell_spec *));
    if (!sorted) return ab_fail(AB_NO_MEMORY, "cells: out of memory");
    for (int i = 0; i < *count; i++) sorted[i] = &cells[i];
    qsort(sorted, (size_t)*count, sizeof(ab_cell_spec *), compare_cells);
    for (int i = *count - 1; i > 0; i--) {
        if (strcmp(sorted[i]->digest, sorted[i - 1]->digest) != 0) continue;
        free(sorted[i]->id);
        sorted[i]->id = NULL;
    }
    free(sorted);
    for (int i = 0; i < *count; i++)
        if (cells[i].id) cells[kept++] = cells[i];
    *count = kept;
    return AB_OK;
}

/* ---- places: every combination in order, so that one cell can be made without the others ------ */

enum { FLOORS = 2 };

/* Places of one half format: levels x scales, then the draws of each floor. */
static int64_t places_of_half(const ab_run_config *config) {
    return (int64_t)config->levels * config->scales + FLOORS * config->floor_draws;
}

static int64_t places_of_seed(const ab_run_config *config) { return places_of_half(config) * config->halves; }

/* The entry of --levels of the perturbed baselines: O0; of several, the least overridden. -1: none. */
static int floor_level(const ab_run_config *config) {
    int found = -1;
    for (int l = config->levels - 1; config->floor_draws > 0 && l >= 0; l--)
        if (ab_level_is_reference(config->level[l]) &&
            (found < 0 || config->own[l].owns <= config->own[found].owns))
            found = l;
    return found;
}

/* Whether the half format changes nothing of what an entry of --levels trains: O0 as it is casts nothing. Of
 * its perturbed baselines, that moved by a rounding depends on it. */
static bool ignores_half(const ab_run_config *config, int level, ab_perturbation perturbation) {
    const ab_level_options *own = &config->own[level];
    return ab_level_is_reference(config->level[level]) && own->owns == 0 && !own->named &&
           perturbation != AB_PERTURB_ROUNDING;
}

/* Makes the cell at a place, with its name. *there: the place has one; what the half format does not change
 * is at the first one only. */
static ab_status make_place(const ab_run_config *config, int64_t place, ab_cell_spec *cell, bool *there) {
    static const ab_scale_choice preset = {.preset = true};
    const int64_t in_half = place % places_of_half(config), seed = place / places_of_seed(config);
    const int scales = config->scales, k = (int)in_half, floor = k - config->levels * scales,
              floor_of = floor_level(config), draws = config->floor_draws;
    const int64_t h = place % places_of_seed(config) / places_of_half(config);
    const int level = floor < 0 ? k / scales : floor_of;
    const ab_perturbation moved =
        floor < 0 ? AB_PERTURB_NONE : (ab_perturbation)(AB_PERTURB_ULP + floor / draws);
    *there = level >= 0 && (floor < 0 || seed == 0) && (h == 0 || !ignores_half(config, level, moved));
    if (!*there) return AB_OK;
    AB_TRY(make_cell(config, level, config->half[h], floor < 0 ? &config->scale[k % scales] : &preset, moved,
                     cell));
    cell->place = place;
    cell->draw = floor < 0 ? 0 : floor % draws;
    cell->seed += (uint64_t)seed;
    return name_cell(config, cell);
}

ab_status ab_run_cell_at(const ab_run_config *config, int64_t place, const char *id, ab_cell_spec *cell) {
    bool there = false;
    if (place >= 0 && place < config->seeds * places_of_seed(config))
        AB_TRY(make_place(config, place, cell, &there));
    if (there && strcmp(cell->id, id) == 0) return AB_OK;
    if (there) free(cell->id);
    return ab_fail(AB_INTERNAL, "no cell '%s' at place %lld", id, (long long)place);
}

/* Repeats the cells for the other seeds, without the noise floors. */
static ab_status append_seeds(const ab_run_config *config, ab_cell_spec *cells, int *count) {
    int first = *count;
    for (int64_t seed = 1; seed < config->seeds; seed++) {
        for (int i = 0; i < first; i++) {
            if (cells[i].perturbation) continue;
            ab_cell_spec cell = cells[i];
            cell.seed = config->seed + (uint64_t)seed;
            cell.place += seed * places_of_seed(config);
            AB_TRY(name_cell(config, &cell));
            cells[(*count)++] = cell;
        }
    }
    return remove_repeats(cells, count);
}

void ab_run_cells_free(ab_cell_spec *cells, int count) {
    for (int i = 0; cells && i < count; i++) free(cells[i].id);
    free(cells);
}

ab_status ab_run_cells(const ab_run_config *config, ab_cell_spec **result, int *count) {
    ab_status status = AB_OK;
    ab_cell_spec *cells = calloc((size_t)(config->seeds * places_of_seed(config)), sizeof *cells);
    *count = 0;
    if (!cells) return ab_fail(AB_NO_MEMORY, "cells: out of memory");
    for (int64_t place = 0; place < places_of_seed(config); place++) {
        bool there;
        AB_TRY_GOTO(make_place(config, place, &cells[*count], &there));
        *count += there;
    }
    AB_TRY_GOTO(remove_repeats(cells, count));
    AB_TRY_GOTO(append_seeds(config, cells, count));
    *result = cells;
    cells = NULL;
out:
    ab_run_cells_free(cells, *count);
    return status;
}

void ab_run_unused_scaling(const ab_options *options, const ab_cell_spec *cells, int count, char *text,
                           size_t size) {
    static const ab_option_id dynamic[] = {AB_OPTION_min_loss_scale, AB_OPTION_max_loss_scale,
                                           AB_OPTION_scale_window};
    char name[AB_OPTION_NAME];
    bool moves = false;
    text[0] = '\0';
    for (int i = 0; i < count; i++) moves = moves || cells[i].policy.loss_scale.dynamic;
    for (size_t i = 0; i < AB_COUNT_OF(dynamic) && !moves; i++)
        if (options->given[dynamic[i]])
            ab_text_append(text, size, "%s%s", text[0] ? ", " : "", ab_option_name(dynamic[i], name));
    if (text[0]) ab_text_append(text, size, ": without effect: no cell has a dynamic loss scale");
}

ab_status ab_cell_file(const char *option, const char *pattern, const char *id, char *path, size_t size) {
    const char *mark = strstr(pattern, "%c");
    const size_t before = mark ? (size_t)(mark - pattern) : strlen(pattern), length = strlen(id);
    AB_TRY(ab_text_path(option, path, size, "%.*s%s%s", (int)before, pattern, mark ? id : "",
                        mark ? mark + 2 : ""));
    for (size_t i = 0; mark && i < length; i++)
        if (path[before + i] == '/') path[before + i] = '-';
    return AB_OK;
}

ab_status ab_cell_continue(const ab_run_config *config, const ab_cell_spec *spec, ab_cell *cell) {
    char path[4096];
    int64_t steps = 0;
    if (!config->resume_file) return AB_OK;
    AB_TRY(ab_cell_file("--resume-from", config->resume_file, spec->id, path, sizeof path));
    AB_TRY(ab_cell_resume(cell, path));
    AB_TRY(ab_checkpoint_steps(path, &steps));
    if (steps == config->first_step) return AB_OK;
    return ab_fail(AB_INPUT, "--resume-from: %s has done %lld steps, the first cell's %lld", path,
                   (long long)steps, (long long)config->first_step);
}

static ab_recipe recipe_of(const ab_run_config *config, const ab_cell_spec *spec) {
    const ab_format *const formats[] = {NULL, &ab_format_fp32, spec->half};
    ab_recipe recipe = config->recipe;
    recipe.clip.format = ab_level_is_reference(spec->level) ? NULL : formats[config->clip_format];
    return recipe;
}

ab_cell_config ab_cell_config_of(const ab_run_config *config, const ab_cell_spec *spec) {
    return (ab_cell_config){.net = config->net,
                            .policy = spec->policy,
                            .min_loss_scale = config->min_loss_scale,
                            .max_loss_scale = config->max_loss_scale,
                            .scale_window = config->scale_window,
                            .optimizer = config->optimizer,
                            .optim = config->optim,
                            .recipe = recipe_of(config, spec),
                            .batch = config->batch,
                            .seed = spec->seed,
                            .data = config->data,
                            .normalize = config->normalize,
                            .shuffled = config->shuffled,
                            .accumulate_half = config->accumulate_half,
                            .path = config->path,
                            .init_file = config->init_file,
                            .init_map = config->init_map,
                            .perturbation = spec->perturbation,
                            .draw = spec->draw,
                            .no_graph = config->no_graph,
                            .tf32 = spec->policy.tf32,
                            .device = config->device,
                            .memory_limit = config->memory_limit};
}
