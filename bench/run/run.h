/* A run: all cells in interleaved rounds, each in its own process, the document rewritten after every one of
 * them. */
#ifndef AB_BENCH_RUN_RUN_H
#define AB_BENCH_RUN_RUN_H

#include "bench/run/config.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* The whole command: argv[0] is the subcommand's name. */
AB_MUST_CHECK ab_status ab_run(int argc, char *const *argv);

/* Resume (resume.c): loads the document that --out names and rebuilds the options it was started with into
 * *options. Configuration options given now must agree with the stored ones. The document keeps the option
 * texts alive. */
AB_MUST_CHECK ab_status ab_resume_options(ab_options *options, cJSON **document);
/* Checks that the configuration still is what the document says (same files, same cells) and reopens its
 * cells. */
AB_MUST_CHECK ab_status ab_resume_check(cJSON *document, const ab_run_config *config,
                                        const ab_options *options, const ab_cell_spec *cells, int count);

/* Output (output.c): makes the folder of --out and proves that the files of the options can be written. */
AB_MUST_CHECK ab_status ab_output_prepare(const ab_options *options);
/* Proves that `path` can be written, and leaves it as it is. `option` is named in the error. */
AB_MUST_CHECK ab_status ab_output_prove(const char *option, const char *path);
/* Table, CSV, Markdown, plots and JSON, as the options say. */
AB_MUST_CHECK ab_status ab_output_reports(const ab_options *options, const cJSON *document);

AB_END_DECLS

#endif
