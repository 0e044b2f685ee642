/* `ampbench profile`: trains some steps at every level and prints where their time goes. */
#include "bench/profile/profile.h"
#include "bench/cmd/cmd.h"
#include "bench/cmd/run_options.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/environment.h"
#include "kernels/core/log.h"
#include "reports/record/json.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 200, MOST_STEPS = 100000 };
static const double most_seconds = 10; /* a cell, without --steps */

static const char help[] =
    "usage: ampbench profile [--net NAME|FILE] [--levels LIST] [--steps N] [--verbose] [--json - | --out "
    "FILE]\n"
    "                        [OPTION]...\n\n"
    "Trains N steps (200, or as many as fit in 10 s) at every level, after 5 that warm up, and prints per "
    "layer and pass: time, share of "
    "the\n"
    "step, GFLOP/s and GB/s, arithmetic intensity, and the share of what this machine can do, which is "
    "measured\n"
    "first: matrix products of the formats in use, exp, tanh and erf, and copying within working sets of\n"
    "several sizes. The longest come first; --verbose shows those below 1 % too.\n\n"
    "Takes the options of `ampbench run`. On the CPU only: a GPU computes while the host goes on.";

static ab_status check(const ab_options *options, const ab_run_config *config) {
    const char *json = options->text[AB_OPTION_json];
    if (json && strcmp(json, "-") != 0)
        return ab_fail(AB_USAGE, "--json: expected -, found '%s'; --out FILE names a file", json);
    if (config->device != &ab_device_cpu)
        return ab_fail(AB_USAGE, "--device: profile times the CPU only; expected --device cpu");
    if (options->given[AB_OPTION_steps] && (config->steps < 1 || config->steps > MOST_STEPS))
        return ab_fail(AB_USAGE, "--steps: profile expects 1 to %d", (int)MOST_STEPS);
    return AB_OK;
}

static ab_status profile_cells(const ab_run_config *config, const ab_options *options,
                               ab_machine_limits *limits, const ab_cell_spec *cells, int count,
                               ab_profile *profile, int *done) {
    const bool given = options->given[AB_OPTION_steps];
    const int64_t steps = given ? config->steps : STEPS;
    const double seconds = given ? 0 : most_seconds;
    for (int i = 0; i < count; i++) {
        if (cells[i].perturbation || cells[i].seed != config->seed) continue;
        AB_TRY(ab_machine_limits_measure(ab_run_product_formats(config), config->path, AB_LIMIT_ATTEMPTS_NS,
                                         limits));
        ab_info("%s", cells[i].id);
        const ab_cell_config settings = ab_cell_config_of(config, &cells[i]);
        ab_profile *one = &profile[(*done)++];
        ab_status status = ab_profile_cell(&settings, cells[i].id, steps, seconds, one);
        one->level = cells[i].level->name;
        one->half = cells[i].half->name;
        if (status != AB_OK) return ab_fail_prefix(status, "%s", cells[i].id);
    }
    for (int i = 0; i < *done; i++) ab_profile_compare(&profile[i], limits);
    return AB_OK;
}

static ab_status show(const ab_options *options, const ab_run_config *config, const ab_machine_limits *limits,
                      const ab_profile *profile, int count) {
    char text[AB_BUILD_TEXT];
    const bool to_stdout = options->text[AB_OPTION_json] != NULL;
    const char *warning = ab_environment_build_warning(text);
    if (!to_stdout && warning) puts(warning);
    if (!to_stdout)
        ab_profile_print(config->net, config->batch, limits, profile, count,
                         options->given[AB_OPTION_verbose]);
    if (!to_stdout && !options->given[AB_OPTION_out]) return AB_OK;
    cJSON *document = ab_profile_json(config->net, config->batch, limits, profile, count);
    ab_status status = document ? AB_OK : ab_fail(AB_NO_MEMORY, "profile: out of memory");
    if (status == AB_OK)
        status = ab_json_write_file(document, to_stdout ? "-" : options->text[AB_OPTION_out]);
    cJSON_Delete(document);
    return status;
}

static ab_status profile_all(const ab_options *options, const ab_run_config *config) {
    ab_cell_spec *cells = NULL;
    ab_machine_limits limits = {.format = {NULL}};
    int count = 0, done = 0;
    AB_TRY(ab_run_cells(config, &cells, &count));
    ab_profile *profile = calloc((size_t)count, sizeof *profile);
    ab_status status = profile ? AB_OK : ab_fail(AB_NO_MEMORY, "profile: out of memory");
    if (status == AB_OK) status = profile_cells(config, options, &limits, cells, count, profile, &done);
    if (status == AB_OK) status = show(options, config, &limits, profile, done);
    for (int i = 0; i < done; i++) ab_profile_clear(&profile[i]);
    free(profile);
    ab_run_cells_free(cells, count);
    return status;
}

ab_status ab_cmd_profile(int argc, char **argv) {
    if (ab_asks_for_help(argc, argv)) {
        puts(help);
        return AB_OK;
    }
    ab_options options;
    ab_run_config config;
    static char plural[] = "--levels";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--level") == 0) argv[i] = plural;
    AB_TRY(ab_options_parse(argc, argv, &options));
    AB_TRY(ab_run_config_create(&options, true, &config));
    ab_status status = check(&options, &config);
    if (status == AB_OK) status = ab_run_config_start(&config);
    if (status == AB_OK) status = profile_all(&options, &config);
    ab_run_config_clear(&config);
    return status;
}
