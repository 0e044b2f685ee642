/* Where and how to measure: the device, threads, probes, the fp32 shadow, rounds and limits. */
#define _GNU_SOURCE
#include "bench/run/config/configure_parts.h"

#include "bench/run/config/configure.h"
#include "bench/run/config/option_values.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/subnormals.h"
#include "kernels/core/text.h"
#include "kernels/mpi/mpi.h"
#include "probes/probe.h"
#include "reports/stats/chance.h"

#include <sched.h>
#include <string.h>

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

/* How the device computes: --math, --cpu-path, --flush-denormal. */
static ab_status take_arithmetic(const ab_options *options, ab_run_config *config) {
    static const char *const maths[] = {"ieee", "tf32"};
    static const char *const paths[] = {"auto", "native", "convert", "reference"};
    int path = 0, math = 0;
    AB_TRY(ab_option_choice(options, AB_OPTION_cpu_path, paths, 4, &path));
    AB_TRY(ab_option_choice(options, AB_OPTION_math, maths, 2, &math));
    config->path = (ab_cpu_path)path;
    config->tf32 = math == 1;
    config->no_graph = options->given[AB_OPTION_no_graph];
    config->flush_denormal = options->given[AB_OPTION_flush_denormal];
    if (config->flush_denormal && !ab_subnormals_can_flush())
        return ab_fail(AB_UNAVAILABLE, "--flush-denormal: this processor cannot take subnormal numbers as "
                                       "zeros; expected x86-64 with SSE3, or aarch64");
    return AB_OK;
}

ab_status ab_configure_device(const ab_options *options, ab_run_config *config) {
    AB_TRY(take_arithmetic(options, config));
    AB_TRY(open_device(options, config));
    if (!config->tf32 || strncmp(config->device->name, "cuda", 4) == 0) return AB_OK;
    return ab_fail(AB_USAGE, "--math tf32: only GPUs have TF32, this run is on %s", config->device->name);
}

static int available_threads(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    count /= ab_rank_place_get().ranks > 0 ? ab_mpi_local_ranks() : 1; /* shared by the ranks of a machine */
    return count > 0 ? count : 1;
}

static ab_status take_counts(const ab_options *options, ab_run_config *config) {
    int64_t threads = available_threads(), draws = 1;
    config->timed_steps = AB_TIMED_STEPS_AUTO;
    config->eval_limit = AB_EVAL_LIMIT_AUTO;
    AB_TRY(ab_option_integer(options, AB_OPTION_threads, 1, 1024, &threads));
    AB_TRY(ab_option_bytes(options, AB_OPTION_memory_limit, &config->memory_limit));
    AB_TRY(ab_option_integer(options, AB_OPTION_rounds, 1, 1000, &config->rounds));
    AB_TRY(ab_option_integer(options, AB_OPTION_timed_steps, 0, 1LL << 40, &config->timed_steps));
    AB_TRY(ab_option_integer(options, AB_OPTION_floor_draws, 1, AB_CHANCE_DRAWS_MOST, &draws));
    config->floor_draws = options->given[AB_OPTION_no_floor] ? 0 : (int)draws;
    AB_TRY(ab_option_integer(options, AB_OPTION_eval_limit, 0, INT64_MAX, &config->eval_limit));
    AB_TRY(ab_option_integer(options, AB_OPTION_cell_timeout, 0, 1 << 30, &config->cell_timeout_s));
    config->threads = (int)threads;
    return ab_option_integer(options, AB_OPTION_log_every, 1, 1LL << 40, &config->log_every);
}

int64_t ab_run_step_samples(const ab_run_config *config) {
    return config->batch * (config->recipe.micro_batches > 1 ? config->recipe.micro_batches : 1);
}

int64_t ab_run_eval_limit(const ab_run_config *config) {
    if (config->eval_limit != AB_EVAL_LIMIT_AUTO) return config->eval_limit;
    const int64_t step = ab_run_step_samples(config), steps = config->first_step + config->steps;
    const int64_t all = config->data ? config->data->split[AB_SPLIT_TEST].count : 0;
    return steps < all / step ? steps * step : 0;
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

/* --probe-every and --trace fix the interval; without them the governor chooses one. */
static ab_status take_probes(const ab_options *options, ab_run_config *config) {
    bool fixed = options->given[AB_OPTION_probe_every];
    if (fixed && options->given[AB_OPTION_probe_budget])
        return ab_fail(AB_USAGE, "--probe-every fixes what --probe-budget chooses: give one of them");
    config->probe_every = 10;
    AB_TRY(ab_option_list(options, AB_OPTION_probes, config, take_probe));
    AB_TRY(ab_option_integer(options, AB_OPTION_probe_every, 0, INT64_MAX, &config->probe_every));
    AB_TRY(ab_option_share(options, AB_OPTION_probe_budget, &config->probe_budget));
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
    int choice = 0;
    AB_TRY(ab_option_choice(options, AB_OPTION_shadow, kinds, 2, &choice));
    config->shadow = choice == 0 ? AB_REFERENCE_FP32 : AB_REFERENCE_DECENSOR;
    return ab_option_integer(options, AB_OPTION_shadow_every, 0, INT64_MAX, &config->shadow_every);
}

ab_status ab_configure_measure(const ab_options *options, ab_run_config *config) {
    AB_TRY(take_counts(options, config));
    AB_TRY(take_profile(options, config));
    AB_TRY(take_probes(options, config));
    return take_shadow(options, config);
}
