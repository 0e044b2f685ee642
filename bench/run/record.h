/* Builds the result document from a configuration and the events of workers. reports/record/result.h reads,
 * checks, summarises and writes it. */
#ifndef AB_BENCH_RUN_RECORD_H
#define AB_BENCH_RUN_RECORD_H

#include "bench/run/config/cells.h"
#include "bench/run/governor.h"
#include "bench/run/process.h"

AB_BEGIN_DECLS

/* Creates a document with every cell pending and `order` for the rounds: order[r * cells + p] is the cell at
 * position p of round r, or -1. Owned by the caller. */
AB_MUST_CHECK ab_status ab_record_create(const ab_run_config *config, const ab_options *options, int argc,
                                         char *const *argv, const ab_cell_spec *cells, int count,
                                         const int *order, cJSON **document);

/* "config" of a document for this configuration: what a resumed run must agree with. Owned by the caller. */
cJSON *ab_record_config(const ab_run_config *config, const ab_options *options);

/* config.scale_window: that of the options, or the default of --scales dynamic. */
double ab_record_scale_window(const ab_run_config *config);

/* A pending cell without processes. Owned by the caller. */
cJSON *ab_record_new_cell(const ab_run_config *config, const ab_cell_spec *spec);

/* Where and how a process ran. In round 0 it has probes and evaluation. */
typedef struct ab_process_place {
    int round, position;
    int beside, threads; /* others that ran at the same time, and then its threads */
} ab_process_place;

/* Adds the events of a process to its cell. A process with a reason marks the cell as failed (or
 * interrupted); earlier data is kept. *added: the new entry of cell.processes, NULL if there is none;
 * borrowed from the cell. */
AB_MUST_CHECK ab_status ab_record_process(cJSON *cell, const ab_process_place *place,
                                          const ab_process *process, const cJSON **added);

/* Adds the machine's limits, which the first cell's process measures with --profile. */
void ab_record_limits(cJSON *document, const ab_process *process);

/* Marks a cell as failed. */
void ab_record_fail(cJSON *cell, const char *reason);

/* Adds the machine of a part's first line (run.h) to document.machines, unless one of this host and class is
 * there: its index in *machine. environment, generator and comparability_key become those of the machines: of
 * the first, and a digest of all classes. */
AB_MUST_CHECK ab_status ab_record_machine(cJSON *document, const char *name, const cJSON *line, int *machine,
                                          bool *added);

/* Whether the cell already has its process of this round. */
bool ab_record_has_round(const cJSON *cell, int round);
/* "ok", "failed", ... */
const char *ab_record_status(const cJSON *cell);

/* For a resumed run: cells that failed or were interrupted become ok if their first process is there, else
 * pending. */
void ab_record_reopen(cJSON *document);

/* design.probing: the interval of the probed steps that was chosen for all cells, and the cost of the dearest
 * cell, if any was measured. */
void ab_record_probing(cJSON *document, int64_t every, double budget, const ab_probe_cost *cost, int costs);

/* Adds a warning to the document, once. */
void ab_record_warn(cJSON *document, const char *text);

/* Sets run.finished_utc, elapsed_s, complete, exit_status and determinism.all_cells_deterministic. */
void ab_record_finish(cJSON *document, bool complete, int exit_status, double elapsed_s);

AB_END_DECLS

#endif
