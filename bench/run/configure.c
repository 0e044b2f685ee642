/* From option texts to checked values. Every check that needs no training happens here, before anything is
 * written. */
#define _GNU_SOURCE
#include "bench/run/configure.h"

#include "bench/run/cells.h"
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
    if (recipe->faults & AB_FAULT_unscale_each_micro_batch && recipe->ranks.every != AB_REDUCE_STEP)
        return ab_fail(AB_USAGE, "--fault unscale_each_micro_batch: sums are not kept apart from what is "
                                 "reduced; give --reduce-every step");
    if (recipe->faults & of_accumulation && recipe->micro_batches < 2)
        return ab_fail(AB_USAGE, "--fault: mistakes of accumulation need --gradient-accumulation-steps of 2 "
                                 "or more");
    return AB_OK;
}

/* The reduction of --ddp, or of the options that it stands for. */
static ab_status take_reduction(const ab_options *options, ab_rank_recipe *ranks) {
    ab_reduction *reduction = &ranks->reduction;
    const char *const *text = options->text;
    const ab_reduction_preset own = {.reduce = text[AB_OPTION_reduce],
                                     .wire = text[AB_OPTION_reduce_dtype],
                                     .divide = text[AB_OPTION_divide],
                                     .every = text[AB_OPTION_reduce_every]};
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
    const char *every = given[AB_OPTION_reduce_every] ? text[AB_OPTION_reduce_every] : preset->every;
    if (preset != &own && strcmp(every, "step") == 0) every = preset->unsynced;
    return ab_reduction_parse_every(every, &ranks->every) == AB_OK
               ? AB_OK
               : ab_fail_prefix(AB_USAGE, "--reduce-every");
}

bool ab_ranks_use_gpus(const ab_options *options) {
    return strcmp(options->text[AB_OPTION_ranks], "nccl") == 0;
}

bool ab_ranks_are_processes(const ab_options *options) {
    return ab_ranks_use_gpus(options) || strcmp(options->text[AB_OPTION_ranks], "mpi") == 0;
}

/* --ranks N, or mpi, nccl: as many as processes of the MPI job. */
static ab_status take_rank_count(const ab_options *options, int64_t *count) {
    const int ranks = ab_rank_place_get().ranks;
    if (!ab_ranks_are_processes(options))
        return parse_integer(options, AB_OPTION_ranks, 1, AB_RANKS_MOST, count);
    *count = ranks;
    return ranks > 0
               ? AB_OK
               : ab_fail(AB_USAGE, "--ranks %s: only `ampbench run` trains with processes of an MPI job",
                         options->text[AB_OPTION_ranks]);
}

/* With --ranks nccl each rank of a machine has the GPU of its number. */
static ab_status open_device(const ab_options *options, ab_run_config *config) {
    const char *device = options->text[AB_OPTION_device];
    char name[24];
    if (!ab_ranks_use_gpus(options)) return ab_device_open(device, &config->device, &config->why_not_gpu);
    if (strcmp(device, "auto") != 0 && strcmp(device, "cuda") != 0)
        return ab_fail(AB_USAGE,
                       "--ranks nccl: each rank has a GPU of its own; expected --device cuda, found %s",
                       device);
    ab_text_exact(name, sizeof name, "cuda:%d", ab_mpi_local_rank());
    const ab_status status = ab_device_open(name, &config->device, NULL);
    return status == AB_OK
               ? AB_OK
               : ab_fail_prefix(status, "--ranks nccl: rank %d of a machine needs a GPU of its own",
                                ab_mpi_local_rank());
}

/* A library's own sum is not simulated; MPI's is made in fp32. */
static ab_status check_library_sum(const ab_options *options, ab_reduction *reduction) {
    const char *library = reduction->scheme->library;
    if (!library) return AB_OK;
    if (strcmp(options->text[AB_OPTION_ranks], library) != 0)
        return ab_fail(AB_USAGE, "--reduce %s: the library's sum is not simulated; give --ranks %s",
                       reduction->scheme->name, library);
    if (!reduction->wire) reduction->wire = &ab_format_fp32;
    return reduction->wire == &ab_format_fp32 || ab_ranks_use_gpus(options)
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

/* Batch norms on a GPU do not ask other ranks. MPI's processes would share a GPU. */
static ab_status check_rank_device(const ab_options *options, const ab_run_config *config) {
    const ab_rank_recipe *ranks = &config->recipe.ranks;
    const char *device = config->device->name, *how = options->text[AB_OPTION_ranks];
    if (ranks->count < 2 || strcmp(device, "cpu") == 0) return AB_OK;
    if (ranks->sync_bn)
        return ab_fail(AB_USAGE, "--sync-bn: batch norms are synchronised on the CPU only, found device %s",
                       device);
    if (strcmp(how, "mpi") == 0)
        return ab_fail(AB_USAGE,
                       "--ranks mpi: trains on the CPU, found device %s; give --ranks nccl or "
                       "--device cpu",
                       device);
    return AB_OK;
}

static ab_status take_ranks(const ab_options *options, ab_run_config *config) {
    ab_rank_recipe *ranks = &config->recipe.ranks;
    double mebibytes = 25;
    AB_TRY(take_rank_count(options, &ranks->count));
    AB_TRY(take_reduction(options, ranks));
    if (config->recipe.micro_batches < 2) ranks->every = AB_REDUCE_STEP; /* all the same, also to digests */
    AB_TRY(check_library_sum(options, &ranks->reduction));
    AB_TRY(take_sync_bn(options, config->net, &ranks->sync_bn));
    AB_TRY(parse_real(options, AB_OPTION_bucket_mb, 0x1p-20, 0x1p20, &mebibytes));
    ranks->bucket_bytes = mebibytes * 0x1p20;
    AB_TRY(parse_integer(options, AB_OPTION_last_rank_samples, 1, 1LL << 31, &ranks->last_samples));
    AB_TRY(parse_integer(options, AB_OPTION_check_ranks, 1, 1LL << 40, &ranks->check_every));
    if (options->given[AB_OPTION_check_ranks] && ranks->count > 1 && ab_rank_place_get().ranks == 0)
        return ab_fail(AB_USAGE, "--check-ranks: simulated ranks share one copy of the weights; give --ranks "
                                 "mpi");
    return check_rank_device(options, config);
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
                            .accumulates = config->recipe.ranks.count > 1 && config->recipe.micro_batches > 1,
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
    AB_TRY_GOTO(open_device(options, config));
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
