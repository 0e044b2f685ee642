/* A run: all cells in interleaved rounds, each in its own process; every finished process is
 * kept in the journal of the document (reports/record/journal.h), the document is rewritten at intervals. */
#ifndef AB_BENCH_RUN_RUN_H
#define AB_BENCH_RUN_RUN_H

#include "bench/run/config.h"
#include "bench/run/replay.h"
#include "kernels/files/lock.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* The command `ampbench run`: argv[0] is the subcommand's name. */
AB_MUST_CHECK ab_status ab_run(int argc, char *const *argv);

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
/* Checks that `path` can be written, without changing it. `option` is named in the error. */
AB_MUST_CHECK ab_status ab_output_check_writable(const char *option, const char *path);
/* Writes table, CSV, Markdown, plots and JSON as selected by the options. */
AB_MUST_CHECK ab_status ab_output_reports(const ab_options *options, const cJSON *document);

AB_END_DECLS

#endif
