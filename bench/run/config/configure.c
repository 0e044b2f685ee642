/* From option texts to checked values, in the order in which they need each other. */
#include "bench/run/config/configure.h"

#include "bench/run/config/configure_parts.h"
#include "bench/run/config/needs.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/parallel.h"
#include "kernels/core/subnormals.h"

#include <stdlib.h>
#include <string.h>

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

/* Every group in turn; a later one needs what an earlier one found. */
static ab_status configure(const ab_options *options, bool with_data, ab_run_config *config) {
    AB_TRY(ab_configure_compare(options, config));
    AB_TRY(ab_configure_device(options, config));
    AB_TRY(ab_configure_net(options, config));
    AB_TRY(ab_configure_layers(config));
    AB_TRY(ab_configure_recipe(options, config));
    AB_TRY(ab_configure_files(options, config));
    AB_TRY(ab_configure_measure(options, config));
    AB_TRY(check_needs(options, config));
    return ab_configure_data(options, with_data, config);
}

ab_status ab_run_config_create(const ab_options *options, bool with_data, ab_run_config *config) {
    *config = (ab_run_config){.data_name = options->text[AB_OPTION_data],
                              .init_file = options->text[AB_OPTION_init],
                              .init_map = options->text[AB_OPTION_init_map],
                              .resume_file = options->text[AB_OPTION_resume_from]};
    const ab_status status = configure(options, with_data, config);
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
