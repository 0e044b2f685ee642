/* The state of a run, shared by the files that make one: prepare.c checks, schedule.c orders, task.c and
 * rounds.c run processes, keep.c writes; part.c and elsewhere.c are for cells that run on other machines. */
#ifndef AB_BENCH_RUN_STATE_H
#define AB_BENCH_RUN_STATE_H

#include "bench/mpi/group.h"
#include "bench/run/monitor.h"
#include "bench/run/progress.h"
#include "bench/run/run.h"
#include "bench/run/worker.h"
#include "reports/record/journal.h"

AB_BEGIN_DECLS

typedef struct ab_run_state {
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    int *order;          /* [rounds][count]; -1: nothing at this position */
    int64_t later_steps; /* that the rounds after the first repeat */
    cJSON *document;
    ab_replay replay;        /* with --resume: the options of the document */
    ab_journal_cells record; /* the cells of the document */
    ab_journal journal;
    int kept;                    /* processes in the journal */
    int64_t saved_ns, saving_ns; /* when the document was last written, and how long that took */
    char **worker_argv;          /* argv of a worker; the words of the task are set per process */
    int words;                   /* of worker_argv, without files that single processes write */
    ab_worker_words task;        /* texts of those words */
    char checkpoints[4096];      /* pattern of checkpoint files; "": none */
    ab_run_locks locks;
    int data_fd;
    ab_group group; /* with --ranks mpi */
    ab_process_link link;
    int64_t started_ns;
    ab_progress progress;
    int short_of_memory;         /* cells that failed because memory ran out */
    const ab_run_driver *driver; /* with --launch */
    void *driven;
    int *part;                 /* [count], of a part: the cells' numbers in the whole run */
    bool watches;              /* a part that ends with standard input */
    char memory_failure[1024]; /* the first of them */
} ab_run_state;

/* The signal that asked the run to end; 0: none (stop.c). */
extern volatile sig_atomic_t ab_run_stop_requested;
void ab_run_catch_signals(void);
/* Frees what *r owns. */
void ab_run_clear(ab_run_state *r);

/* ---- prepare.c */

/* Checks everything that would otherwise fail late, and makes the document, or reopens it. */
AB_MUST_CHECK ab_status ab_run_prepare(ab_run_state *r, int argc, char *const *argv);
/* Compiles every cell; unless told not to, checks that it fits the memory. Each is compared with all that is
 * left: cells that do not fit side by side run one after the other. */
AB_MUST_CHECK ab_status ab_run_check_plans(const ab_run_state *r);
/* The worker's argv: "ampbench worker <task> <configuration options>"; ab_run_set_task sets the task. */
AB_MUST_CHECK ab_status ab_run_build_words(ab_run_state *r);
/* Makes `record` of the document's cells. */
AB_MUST_CHECK ab_status ab_run_list_cells(ab_run_state *r);
/* What the others must share with rank 0: the build, and the options of the configuration. */
AB_MUST_CHECK ab_status ab_run_compare_ranks(ab_run_state *r);
uint64_t ab_run_build_digest(void);

/* ---- schedule.c */

/* Each round runs every timed cell once, in a random order per round. */
AB_MUST_CHECK ab_status ab_run_draw_order(ab_run_state *r);
/* Whether the cell runs in every round, not only in the first. */
bool ab_run_is_timed(const ab_run_state *r, int cell);
/* Whether the process at this place of the order is still to be run. */
bool ab_run_is_due(const ab_run_state *r, int round, int position);
int ab_run_count_due(const ab_run_state *r);

/* Positions of a round, [from, end), whose processes run `width` at a time, each with `threads` threads. */
typedef struct ab_run_stretch {
    int from, end, width, threads;
} ab_run_stretch;

/* Those that begin with `from`, which is due. One that is timed runs alone, with all threads. Others, of
 * which the losses and counts are wanted and not the times, share the threads: several steps on one thread
 * each take less time than one after the other on all. So no more run than there are threads, and no more
 * than the memory has room for. On a GPU, with ranks that are processes, and where lines are said of single
 * steps, they run one after the other. */
ab_run_stretch ab_run_stretch_at(const ab_run_state *r, int round, int from);
/* The most that may run at a time, of `count` processes like that of this cell. */
int ab_run_width(const ab_run_state *r, int cell, int count);

/* Sets later_steps, after the first round. Where they are not given: as many as the cell needs that needs
 * most (timed_steps.h), and all if one was disturbed. */
AB_MUST_CHECK ab_status ab_run_choose_steps(ab_run_state *r);
/* How many times a cell trains in all for every time it is probed, at least: whole trainings. */
double ab_run_trainings(const ab_run_state *r);

/* ---- task.c */

/* Sets the words of a task in worker_argv. steps, threads: as in ab_worker_task. */
void ab_run_set_task(ab_run_state *r, const ab_cell_spec *cell, ab_worker_kind kind, int64_t steps,
                     int threads);
/* The same, and at the other ranks. */
AB_MUST_CHECK ab_status ab_run_start_task(ab_run_state *r, int cell, ab_worker_kind kind, int64_t steps,
                                          int threads);
/* After a worker: waits for those of the other ranks. A failure there is one of this process. */
AB_MUST_CHECK ab_status ab_run_end_task(ab_run_state *r, ab_process *process);
/* An ab_process_link's `serve` and an ab_process_watch's `tick` that does nothing. */
ab_status ab_run_serve(void *context, bool ready, int64_t deadline_ns);
void ab_run_no_tick(void *context, const ab_process *process);
/* All that a rank that is not the first does: runs the workers that the first one names. */
AB_MUST_CHECK ab_status ab_run_follow(ab_run_state *r);

/* ---- probe_cost.c */

/* The same steps in every cell: those of the document that is resumed, or those that the budget allows. */
AB_MUST_CHECK ab_status ab_run_choose_probed_steps(ab_run_state *r);

/* ---- rounds.c */

/* Runs every process that is due. AB_INTERRUPTED: a signal came. */
AB_MUST_CHECK ab_status ab_run_rounds(ab_run_state *r);

/* ---- keep.c */

/* Writes the document as of now and begins its journal. */
AB_MUST_CHECK ab_status ab_run_save(ab_run_state *r);
/* Writes the document for the last time: nothing is left for a journal. */
AB_MUST_CHECK ab_status ab_run_save_finished(ab_run_state *r, ab_status outcome);
/* Keeps what became of cell `index`: in the journal, or of a part on standard output. `whole`: all of the
 * cell, else the process that was added. */
AB_MUST_CHECK ab_status ab_run_keep(ab_run_state *r, int index, bool whole, const cJSON *process);

/* ---- elsewhere.c */

/* Has the driver of --launch run the cells. *later: the rest is run some other time. */
AB_MUST_CHECK ab_status ab_run_drive(ab_run_state *r, bool *later);
/* Of the build and of what every cell is: "BUILD:CELLS". */
void ab_run_identify(const ab_run_state *r, char identity[34]);

AB_END_DECLS

#endif
