/* Tasks of workers, at this process and at the other ranks of an MPI job. */
#include "bench/run/state.h"

#include "bench/run/config/configure.h"
#include "bench/run/environment.h"
#include "bench/run/shared_data.h"
#include "bench/run/worker.h"
#include "bench/timer/timer.h"
#include "kernels/core/text.h"

void ab_run_set_task(ab_run_state *r, const ab_cell_spec *cell, ab_worker_kind kind, int64_t steps,
                     int threads) {
    const ab_worker_task task = {.cell = cell->id,
                                 .place = cell->place,
                                 .kind = kind,
                                 .spawned_ns = ab_monotonic_ns(),
                                 .data_fd = r->data_fd,
                                 .every = r->config.probe_every,
                                 .steps = steps,
                                 .threads = threads};
    ab_worker_write(&task, &r->task, r->worker_argv);
}

ab_status ab_run_serve(void *context, bool ready, int64_t deadline_ns) {
    ab_run_state *r = context;
    return ab_group_serve(&r->group, ready, deadline_ns);
}

/* Sets the words of the task, here and at the other ranks. */
ab_status ab_run_start_task(ab_run_state *r, int cell, ab_worker_kind kind, int64_t steps, int threads) {
    ab_run_set_task(r, &r->cells[cell], kind, steps, threads);
    if (!r->group.mpi) return AB_OK;
    if (r->group.failed) return ab_fail(AB_SYSTEM, "%s", r->group.reason);
    return ab_group_send_task(&r->group, &(ab_group_task){cell, kind, r->config.probe_every, steps});
}

/* After a worker: waits for those of the other ranks. A failure there is one of this process. */
ab_status ab_run_end_task(ab_run_state *r, ab_process *process) {
    if (!r->group.mpi || process->interrupted) return AB_OK;
    if (process->reason[0]) {
        ab_group_fail(&r->group, AB_SYSTEM, process->reason);
        return AB_OK;
    }
    if (ab_group_done(&r->group) == AB_OK) return AB_OK;
    if (ab_run_stop_requested || r->group.place.rank > 0) return AB_INTERRUPTED;
    ab_text_show(process->reason, sizeof process->reason, "%s", ab_error_message());
    return AB_OK;
}

void ab_run_no_tick(void *context, const ab_process *process) {
    (void)context;
    (void)process;
}

/* A rank that is not the first: runs the workers that the first one names. */
static ab_status follow(ab_run_state *r) {
    const ab_process_watch watch = {ab_run_no_tick, NULL, 0, &ab_run_stop_requested, &r->link};
    for (;;) {
        ab_group_task task;
        ab_process process;
        AB_TRY(ab_group_wait_task(&r->group, &task));
        r->group.ended = task.cell < 0 || task.cell >= r->count;
        if (r->group.ended) return AB_OK;
        r->config.probe_every = task.every;
        ab_run_set_task(r, &r->cells[task.cell], (ab_worker_kind)task.kind, task.steps, 0);
        AB_TRY(ab_process_run(r->worker_argv, &watch, &process));
        ab_status status = ab_run_end_task(r, &process);
        if (process.reason[0]) status = ab_fail(AB_SYSTEM, "%s", process.reason);
        ab_process_clear(&process);
        AB_TRY(status);
    }
}

/* What prepare does, without the outputs. */
ab_status ab_run_follow(ab_run_state *r) {
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    ab_environment_prepare_workers();
    AB_TRY(ab_run_build_words(r));
    AB_TRY(ab_run_compare_ranks(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    ab_run_catch_signals();
    return follow(r);
}
