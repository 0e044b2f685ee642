/* A run: all cells in interleaved rounds, each in its own process; every finished process is
 * kept in the journal of the document (reports/record/journal.h), the document is rewritten at intervals. */
#ifndef AB_BENCH_RUN_RUN_H
#define AB_BENCH_RUN_RUN_H

#include "bench/run/config/cells.h"
#include "bench/run/replay.h"
#include "kernels/files/lock.h"

#include <cjson/cJSON.h>
#include <signal.h>

AB_BEGIN_DECLS

/* What somebody sees of a run who has its cells run elsewhere (bench/sweep). All is borrowed. */
typedef struct ab_run_work {
    const ab_options *options;
    const ab_run_config *config;
    cJSON *document; /* to read, and to warn in */
    int cells;
    char *const *words; /* options of the configuration; ends with NULL */
    char identity[34];  /* digests of build and cells, which others must share: "BUILD:CELLS" */
    const volatile sig_atomic_t *stop; /* non-zero: the run is to end */
    void *run;
} ab_run_work;

/* Whether nothing is left to do for the cell: every round is there, or it failed. */
bool ab_run_is_done(const ab_run_work *work, int cell);

/* Adds a machine that runs cells to the document, unless it is there: its place in *machine. `line`: the
 * first line of a part (ab_run_part). AB_INPUT if it is none of this run. */
AB_MUST_CHECK ab_status ab_run_take_machine(const ab_run_work *work, const char *name, cJSON *line,
                                            int *machine);

/* Adds a line of a part to the document and its journal; *cell: whose it was. AB_INPUT: not sound. */
AB_MUST_CHECK ab_status ab_run_take_line(const ab_run_work *work, cJSON *line, int machine, int *cell);

/* The cell fails with this reason. */
AB_MUST_CHECK ab_status ab_run_give_up(const ab_run_work *work, int cell, const char *reason);

/* Somebody who has the cells of a run run elsewhere; --launch says how. */
typedef struct ab_run_driver {
    /* Comes first. *helps: this process runs cells for another one and does nothing but `help`. */
    ab_status (*open)(const ab_options *options, const volatile sig_atomic_t *stop, void **context,
                      bool *helps);
    ab_status (*help)(void *context, const ab_options *options);
    /* Runs what is left. *later: the rest is run some other time. */
    ab_status (*cells)(void *context, const ab_run_work *work, bool *later);
    void (*close)(void *context, ab_status outcome); /* also after an error of `open` */
} ab_run_driver;

/* The command `ampbench run`: argv[0] is the subcommand's name. */
AB_MUST_CHECK ab_status ab_run(int argc, char *const *argv, const ab_run_driver *driver);

/* The hidden subcommand `ampbench part`: runs some cells of a run that another process records. argv: "part",
 * cells ("0-9,14"), identity (ab_run_work), interval of probed steps, processes that share the processors, id
 * of the run, "watch" (end with standard input) or "-"; then options. Writes lines of JSON to standard
 * output:
 * {"schema": "ampbench-part", "run", "class", ...}, then those of
 * a journal (reports/record/journal.h) with the numbers of the whole run, or {"error"}. */
enum { AB_PART_ARGS = 7 };
AB_MUST_CHECK ab_status ab_run_part(int argc, char *const *argv);

/* Resume (resume.c): loads the document named by --out and restores the options of its run into *options.
 * Configuration options given now must agree with the stored ones. The option texts are borrowed from
 * *replay; the caller owns it and the document. */
AB_MUST_CHECK ab_status ab_resume_options(ab_options *options, cJSON **document, ab_replay *replay);
/* Checks that the configuration still matches the document (same files, same cells) and reopens its cells. */
AB_MUST_CHECK ab_status ab_resume_check(cJSON *document, const ab_run_config *config,
                                        const ab_options *options, const ab_cell_spec *cells, int count);

/* What a run holds while it lasts (kernels/files/lock.h). */
typedef struct ab_run_locks {
    ab_lock document, plots, checkpoints, weights;
} ab_run_locks;

/* Output (output.c): creates the folder of --out, locks the document and the folder of plots, and checks that
 * the files named by options can be written. */
AB_MUST_CHECK ab_status ab_output_prepare(const ab_options *options, ab_run_locks *locks);
/* Locks `path`, which may hold %c, unless `lock` is taken already, and removes what killed writers of it left
 * behind. */
AB_MUST_CHECK ab_status ab_output_lock(const char *option, const char *path, ab_lock *lock);
void ab_output_release(const ab_options *options, ab_run_locks *locks);
/* Makes the folder of `path` and checks that `path` can be written, without changing it. `option` is named in
 * the error. */
AB_MUST_CHECK ab_status ab_output_check_writable(const char *option, const char *path);
/* Writes table, CSV, Markdown, plots and JSON as selected by the options. */
AB_MUST_CHECK ab_status ab_output_reports(const ab_options *options, const cJSON *document);

AB_END_DECLS

#endif
