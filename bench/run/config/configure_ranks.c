/* How to train on several ranks: --ranks and the options of reductions, synchronised batch norms and checks.
 */
#define _GNU_SOURCE
#include "bench/run/config/configure_parts.h"

#include "bench/run/config/configure.h"
#include "bench/run/config/option_values.h"
#include "bench/train/ranks/link.h"

#include <string.h>

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
        return ab_option_integer(options, AB_OPTION_ranks, 1, AB_RANKS_MOST, count);
    *count = ranks;
    return ranks > 0
               ? AB_OK
               : ab_fail(AB_USAGE, "--ranks %s: only `ampbench run` trains with processes of an MPI job",
                         options->text[AB_OPTION_ranks]);
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
    int choice = 0;
    if (!options->text[AB_OPTION_sync_bn]) return AB_OK;
    AB_TRY(ab_option_choice(options, AB_OPTION_sync_bn, forms, 2, &choice));
    *form = (ab_sync_form)(AB_SYNC_TORCH + choice);
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

ab_status ab_configure_ranks(const ab_options *options, ab_run_config *config) {
    ab_rank_recipe *ranks = &config->recipe.ranks;
    double mebibytes = 25;
    AB_TRY(take_rank_count(options, &ranks->count));
    AB_TRY(take_reduction(options, ranks));
    if (config->recipe.micro_batches < 2) ranks->every = AB_REDUCE_STEP; /* all the same, also to digests */
    AB_TRY(check_library_sum(options, &ranks->reduction));
    AB_TRY(take_sync_bn(options, config->net, &ranks->sync_bn));
    AB_TRY(ab_option_real(options, AB_OPTION_bucket_mb, 0x1p-20, 0x1p20, &mebibytes));
    ranks->bucket_bytes = mebibytes * 0x1p20;
    AB_TRY(ab_option_integer(options, AB_OPTION_last_rank_samples, 1, 1LL << 31, &ranks->last_samples));
    AB_TRY(ab_option_integer(options, AB_OPTION_check_ranks, 1, 1LL << 40, &ranks->check_every));
    if (options->given[AB_OPTION_check_ranks] && ranks->count > 1 && ab_rank_place_get().ranks == 0)
        return ab_fail(AB_USAGE, "--check-ranks: simulated ranks share one copy of the weights; give --ranks "
                                 "mpi");
    return check_rank_device(options, config);
}
