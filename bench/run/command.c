/* The command `ampbench run`: opens what a run needs, has the cells run, and says what came of it. */
#define _GNU_SOURCE
#include "bench/run/run.h"

#include "bench/run/config/configure.h"
#include "bench/run/record.h"
#include "bench/run/state.h"
#include "bench/timer/timer.h"
#include "kernels/core/log.h"
#include "kernels/core/show.h"
#include "kernels/mpi/mpi.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All processes of all cells. A rank's failure, whenever it comes, stays in the document. */
static ab_status run_cells(ab_run_state *r, bool *later) {
    ab_status status = ab_run_choose_probed_steps(r);
    if (status == AB_OK) status = r->driver ? ab_run_drive(r, later) : ab_run_rounds(r);
    if (!r->group.failed || ab_run_stop_requested) return status;
    ab_record_warn(r->document, r->group.reason);
    AB_TRY(ab_run_save(r));
    return ab_fail(AB_SYSTEM, "%s; finish with: ampbench run --resume --out %s under mpirun", r->group.reason,
                   r->options.text[AB_OPTION_out]);
}

static ab_status verdict(const ab_run_state *r) {
    int failed = 0;
    const cJSON *first = NULL; /* that failed */
    for (int i = r->count - 1; i >= 0; i--) {
        if (strcmp(ab_record_status(r->record.cell[i]), "ok") == 0) continue;
        first = r->record.cell[i];
        failed++;
    }
    if (failed && failed == r->short_of_memory)
        return ab_fail(AB_NO_MEMORY, "%d of %d cells ran out of memory; %s", failed, r->count,
                       r->memory_failure);
    if (failed)
        return ab_fail(AB_INTERNAL, "%d of %d cells failed; %s: %s", failed, r->count,
                       ab_json_text(first, "id", ""), ab_json_text(first, "reason", "no reason recorded"));
    const cJSON *determinism = cJSON_GetObjectItem(r->document, "determinism");
    if (cJSON_IsFalse(cJSON_GetObjectItem(determinism, "all_cells_deterministic")))
        ab_warn("a cell's losses differed between rounds: this machine's results are not reproducible bit "
                "for bit");
    return AB_OK;
}

/* Warns of injected faults. */
static void warn_of_faults(const ab_recipe *recipe) {
    for (int i = 0; i < AB_FAULT_COUNT; i++)
        if (recipe->faults >> i & 1u) ab_warn("--fault %s: %s", ab_fault_name(i), ab_fault_text(i));
    if (recipe->schedule_on_skip)
        ab_warn("--schedule-on-skip: the schedule runs ahead of the training at every skipped step");
}

static void warn_of(const ab_run_state *r, const char *text) {
    if (!text[0]) return;
    ab_warn("%s", text);
    ab_record_warn(r->document, text);
}

/* Options without effect are said on stderr and in the document. */
static void warn_of_unused(const ab_run_state *r) {
    char text[480];
    ab_level_options_unused(&r->options, r->config.level, r->config.levels, text, sizeof text);
    warn_of(r, text);
    ab_run_unused_scaling(&r->options, r->cells, r->count, text, sizeof text);
    warn_of(r, text);
}

static ab_status open_group(ab_run_state *r) {
    r->link = (ab_process_link){.fd = -1, .serve = ab_run_serve, .context = r};
    if (!ab_ranks_are_processes(&r->options)) return AB_OK;
    r->group.option = ab_ranks_use_gpus(&r->options) ? "--ranks nccl" : "--ranks mpi";
    AB_TRY(ab_group_open(&r->group, &ab_run_stop_requested));
    if (r->group.relay.mpi) r->link.fd = r->group.relay.socket;
    if (r->group.place.rank > 0) ab_log_set_level(AB_LOG_QUIET);
    return AB_OK;
}

static ab_status open_driver(ab_run_state *r, bool *helps) {
    static const ab_option_id left_there[] = {AB_OPTION_save_weights, AB_OPTION_save_gradients,
                                              AB_OPTION_checkpoint_every};
    char name[AB_OPTION_NAME];
    if (!r->options.given[AB_OPTION_launch]) {
        r->driver = NULL;
        return AB_OK;
    }
    for (size_t i = 0; i < AB_COUNT_OF(left_there); i++)
        if (r->options.given[left_there[i]])
            return ab_fail(AB_USAGE, "--launch: %s would leave files on the machines that run the cells",
                           ab_option_name(left_there[i], name));
    if (ab_ranks_are_processes(&r->options))
        return ab_fail(AB_USAGE,
                       "--launch: the processes of an MPI job are cells or ranks (--ranks %s), not "
                       "both",
                       r->options.text[AB_OPTION_ranks]);
    ab_run_catch_signals();
    return r->driver->open(&r->options, &ab_run_stop_requested, &r->driven, helps);
}

static ab_status lock_resumed(ab_run_state *r) {
    const char *out = r->options.text[AB_OPTION_out];
    return access(out, F_OK) == 0 ? ab_output_lock("--resume", out, &r->locks.document) : AB_OK;
}

/* Locked before it is read: a run that has not ended writes it. Of the processes of an MPI job only the first
 * one writes; if it cannot, it says so when it can tell the others. */
static ab_status read_resumed(ab_run_state *r) {
    const ab_status locked = ab_mpi_launched_rank() == 0 ? lock_resumed(r) : AB_OK;
    if (!ab_mpi_launcher()) AB_TRY(locked);
    return ab_resume_options(&r->options, &r->document, &r->replay);
}

static ab_status run_all(ab_run_state *r, int argc, char *const *argv) {
    bool helps = false, later = false;
    const bool resumed = r->options.given[AB_OPTION_resume];
    if (resumed) AB_TRY(read_resumed(r));
    AB_TRY(open_driver(r, &helps));
    if (helps) return r->driver->help(r->driven, &r->options);
    AB_TRY(open_group(r));
    if (r->group.place.rank > 0) return ab_run_follow(r);
    if (resumed) AB_TRY(lock_resumed(r));
    AB_TRY(ab_run_prepare(r, argc, argv));
    warn_of_faults(&r->config.recipe);
    warn_of_unused(r);
    if (r->config.why_not_gpu) ab_info("--device auto: the GPU is not used: %s", r->config.why_not_gpu);
    AB_TRY(ab_run_save(r));
    ab_run_catch_signals();
    AB_TRY(run_cells(r, &later));
    if (later) return AB_OK;
    ab_status outcome = verdict(r);
    AB_TRY(ab_run_save_finished(r, outcome));
    AB_TRY(ab_output_reports(&r->options, r->document));
    return outcome == AB_OK ? AB_OK : verdict(r);
}

/* A rank that stops before its time says why; the job ends. Rank 0 says its error before it leaves: when
 * another rank ends with a failure, mpirun kills those that are left. */
static void end_group(ab_run_state *r, ab_status status) {
    const bool finished = status == AB_OK || r->group.ended;
    if (!r->group.mpi) return;
    if (!finished && r->group.place.ranks > 1) ab_group_fail(&r->group, status, ab_error_message());
    if (status != AB_OK && r->group.place.rank == 0 && ab_error_message()[0]) {
        ab_print(stderr, "ampbench: %s\n", ab_error_message());
        (void)ab_fail(status, "%s", ""); /* it was said */
    }
    ab_group_close(&r->group, ab_status_exit(status));
}

void ab_run_clear(ab_run_state *r) {
    if (r->data_fd >= 0) close(r->data_fd);
    ab_run_config_clear(&r->config);
    cJSON_Delete(r->document);
    ab_replay_clear(&r->replay);
    ab_run_cells_free(r->cells, r->count);
    free(r->order);
    free(r->record.cell);
    free(r->worker_argv);
    free(r->part);
}

ab_status ab_run(int argc, char *const *argv, const ab_run_driver *driver) {
    ab_run_state r = {.data_fd = -1, .started_ns = ab_monotonic_ns(), .driver = driver};
    AB_TRY(ab_options_parse(argc, argv, &r.options));
    if (r.options.given[AB_OPTION_verbose]) ab_log_set_level(AB_LOG_INFO);
    ab_status status = run_all(&r, argc, argv);
    end_group(&r, status);
    ab_journal_end(&r.journal, r.journal.out.stream && r.kept == 0 ? r.options.text[AB_OPTION_out] : NULL);
    ab_output_release(&r.options, &r.locks);
    if (r.driver) r.driver->close(r.driven, status);
    ab_run_clear(&r);
    return status;
}
