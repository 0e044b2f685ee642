/* How to train: the optimizer, its schedule, clipping, averages, groups of parameters, faults, batches and
 * seeds. */
#define _GNU_SOURCE
#include "bench/run/config/configure_parts.h"

#include "bench/run/config/option_values.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/text.h"

#include <string.h>

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
    AB_TRY(ab_option_choice(options, AB_OPTION_optimizer_rounding, when, 2, &choice));
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
    AB_TRY(ab_option_real(options, AB_OPTION_lr, 0, 1e9, &optim->lr));
    AB_TRY(ab_option_real(options, AB_OPTION_momentum, 0, 1, &optim->momentum));
    AB_TRY(ab_option_real(options, AB_OPTION_dampening, 0, 1, &optim->dampening));
    AB_TRY(ab_option_real(options, AB_OPTION_weight_decay, 0, 1e9, &optim->weight_decay));
    AB_TRY(ab_option_real(options, AB_OPTION_beta1, 0, 1, &optim->beta1));
    AB_TRY(ab_option_real(options, AB_OPTION_beta2, 0, 1, &optim->beta2));
    AB_TRY(ab_option_real(options, AB_OPTION_alpha, 0, 1, &optim->alpha));
    AB_TRY(ab_option_real(options, AB_OPTION_lr_decay, 0, 1e9, &optim->lr_decay));
    AB_TRY(ab_option_real(options, AB_OPTION_trust_coefficient, 0, 1e9, &optim->trust_coefficient));
    AB_TRY(take_rounding(options, config));
    return ab_option_real(options, AB_OPTION_eps, 0, 1e9, &optim->eps);
}

static ab_status take_groups(const ab_options *options, ab_run_config *config) {
    ab_param_groups *groups = &config->recipe.groups;
    const char *no_decay = options->text[AB_OPTION_no_decay], *text = options->text[AB_OPTION_param_groups];
    if (no_decay) AB_TRY(ab_param_groups_no_decay(no_decay, groups));
    if (text) AB_TRY(ab_param_groups_parse(text, groups));
    return ab_param_groups_check(groups, config->net);
}

static ab_status take_fault(ab_run_config *config, const char *item) {
    return ab_fault_add(item, &config->recipe.faults);
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

/* Formats of the optimizer's state, the average of the weights and the norms of clipping. */
static ab_status take_formats(const ab_options *options, ab_run_config *config) {
    static const char *const states[] = {"weights", "fp32", "half"}, *const averages[] = {"fp32", "half"};
    static const char *const norms[] = {"gradients", "fp32", "half"};
    int choice = 0;
    AB_TRY(ab_option_choice(options, AB_OPTION_optimizer_state, states, 3, &config->state_format));
    AB_TRY(ab_option_choice(options, AB_OPTION_ema_format, averages, 2, &choice));
    config->ema_half = choice == 1;
    return ab_option_choice(options, AB_OPTION_clip_norm_format, norms, 3, &config->clip_format);
}

static ab_status take_clip(const ab_options *options, ab_clip_config *clip) {
    AB_TRY(ab_option_real(options, AB_OPTION_clip_norm, 0x1p-126, 1e30, &clip->norm));
    return ab_option_real(options, AB_OPTION_clip_value, 0x1p-126, 1e30, &clip->value);
}

static ab_status take_ema(const ab_options *options, double *decay) {
    AB_TRY(ab_option_real(options, AB_OPTION_ema, 0, 1, decay));
    if (!options->given[AB_OPTION_ema] || (*decay > 0 && *decay < 1)) return AB_OK;
    return ab_fail(AB_USAGE, "--ema: expected a number between 0 and 1, found '%s'",
                   options->text[AB_OPTION_ema]);
}

static ab_status take_faults(const ab_options *options, ab_run_config *config) {
    if (options->text[AB_OPTION_fault]) AB_TRY(ab_option_list(options, AB_OPTION_fault, config, take_fault));
    if (config->recipe.faults & AB_FAULTS_OF_RESUMING && !config->resume_file)
        return ab_fail(AB_USAGE, "--fault: mistakes of resuming need --resume-from");
    return check_faults(&config->recipe);
}

static ab_status take_counts(const ab_options *options, ab_run_config *config) {
    int64_t seed = 1;
    config->seeds = 1;
    config->batch = config->net->defaults.batch;
    config->epochs = config->net->defaults.epochs;
    AB_TRY(ab_option_integer(options, AB_OPTION_batch, 1, 1 << 24, &config->batch));
    AB_TRY(ab_option_integer(options, AB_OPTION_epochs, 1, 1 << 24, &config->epochs));
    AB_TRY(ab_option_integer(options, AB_OPTION_seed, 0, (1LL << 53) - 1001, &seed));
    config->seed = (uint64_t)seed;
    return ab_option_integer(options, AB_OPTION_seeds, 1, 1000, &config->seeds);
}

ab_status ab_configure_recipe(const ab_options *options, ab_run_config *config) {
    ab_recipe *recipe = &config->recipe;
    AB_TRY(take_formats(options, config));
    AB_TRY(take_optimizer(options, config));
    AB_TRY(ab_schedule_parse(options->text[AB_OPTION_schedule], &recipe->schedule, &recipe->rates));
    recipe->schedule_on_skip = options->given[AB_OPTION_schedule_on_skip];
    recipe->rates.lr = config->optim.lr;
    AB_TRY(take_clip(options, &recipe->clip));
    AB_TRY(ab_option_integer(options, AB_OPTION_gradient_accumulation_steps, 1, 1 << 20,
                             &recipe->micro_batches));
    AB_TRY(ab_configure_ranks(options, config));
    AB_TRY(take_ema(options, &recipe->ema_decay));
    AB_TRY(take_groups(options, config));
    AB_TRY(take_faults(options, config));
    return take_counts(options, config);
}
