/* What to train: the network, its data, and files of weights and checkpoints. */
#define _GNU_SOURCE
#include "bench/run/config/configure_parts.h"

#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/config/option_values.h"
#include "kernels/core/text.h"

#include <string.h>

/* Without --data: a source that suits the net. */
static void choose_data(const ab_options *options, ab_run_config *config) {
    const char *suitable = ab_data_default(&config->net->data);
    if (!options->given[AB_OPTION_data] && suitable) config->data_name = suitable;
}

static ab_status take_images(const ab_options *options, ab_run_config *config) {
    static const char *const orders[] = {"sequential", "shuffled"};
    int choice = 0;
    AB_TRY(ab_option_choice(options, AB_OPTION_order, orders, 2, &choice));
    config->shuffled = choice == 1;
    if (options->text[AB_OPTION_pad]) AB_TRY(ab_pixels_pad(options->text[AB_OPTION_pad], &config->pixels));
    return ab_pixels_normalize(options->text[AB_OPTION_normalize], &config->normalize, &config->pixels);
}

ab_status ab_configure_net(const ab_options *options, ab_run_config *config) {
    const char *recompute = options->text[AB_OPTION_recompute];
    AB_TRY(take_images(options, config));
    AB_TRY(ab_net_load(options->text[AB_OPTION_net], &config->net));
    if (options->given[AB_OPTION_freeze_bn] && ab_net_freeze(config->net) == 0)
        return ab_fail(AB_USAGE, "--freeze-bn: network %s has no batch norms", config->net->name);
    if (options->given[AB_OPTION_accumulate] && !config->accumulate_half) ab_net_accumulate_fp32(config->net);
    choose_data(options, config);
    return recompute ? ab_net_recompute(config->net, recompute) : AB_OK;
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

ab_status ab_configure_files(const ab_options *options, ab_run_config *config) {
    AB_TRY(check_saved_gradients(options, config));
    if (config->init_file && config->resume_file)
        return ab_fail(AB_USAGE, "--init and --resume-from: give one of them");
    return ab_option_integer(options, AB_OPTION_checkpoint_every, 1, 1LL << 40, &config->checkpoint_every);
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
    AB_TRY(ab_option_integer(options, AB_OPTION_steps, 0, 1LL << 40, &config->steps));
    ab_schedule_config *rates = &config->recipe.rates;
    if (rates->total == 0) rates->total = config->steps;
    AB_TRY(read_first_step(config));
    return config->steps > 0 ? ab_schedule_check(config->recipe.schedule, rates) : AB_OK;
}

static ab_status read_data(ab_run_config *config) {
    AB_TRY(ab_data_open(config->data_name, &config->net->data, config->seed, &config->data));
    return ab_data_preprocess(config->data, &config->pixels);
}

ab_status ab_configure_data(const ab_options *options, bool opened, ab_run_config *config) {
    const bool images = config->pixels.padded || config->pixels.channels > 0;
    if (!opened && !images)
        return options->given[AB_OPTION_data] ? ab_data_check(config->data_name, &config->net->data) : AB_OK;
    AB_TRY(read_data(config));
    if (opened) return ab_run_config_steps(options, config);
    ab_data_close(config->data);
    config->data = NULL;
    return AB_OK;
}
