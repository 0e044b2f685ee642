/* The gate compares two result documents and returns a verdict with its evidence. A pure function of the
 * documents and the options; all compilers give the same bits.
 *
 * Lanes: `comparable` (same schema, machine, network, batch, ...), `cells` (missing, new, failed),
 * `numerics` (losses, skipped steps, loss scales, flushed and non-finite counts; exact), `work` (bytes by
 * category, casts, FLOPs, kernel launches; exact up to a tolerance), `time` (binding only for documents
 * measured in alternating rounds of one session, otherwise advisory) and `drift` (against a pinned
 * document). */
#ifndef AB_REPORTS_GATE_GATE_H
#define AB_REPORTS_GATE_GATE_H

#include "reports/gate/gate_rule.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_gate_options {
    double time_tolerance, memory_tolerance, guard, loss_bound, drift_budget; /* ratios; loss_bound 0: bits */
    const char *ignore;          /* fields that may differ, separated by commas; NULL: none */
    bool lenient;                /* missing and new cells are reported only */
    const cJSON *calibration;    /* of `gate --selftest`; NULL: none */
    const char *calibration_ref; /* its file name */
} ab_gate_options;

/* The defaults of `ampbench gate`. */
ab_gate_options ab_gate_options_standard(void);

/* A document and its display name. */
typedef struct ab_gate_side {
    const cJSON *document; /* summarised; NULL: none */
    const char *name;
} ab_gate_side;

/* Creates the gate document (schema "ampbench-gate"), owned by the caller. A regression is not an error of
 * this call. */
AB_MUST_CHECK ab_status ab_gate_compare(ab_gate_side base, ab_gate_side other, ab_gate_side pinned,
                                        const ab_gate_options *options, cJSON **gate);

/* The gate document of a run for which there is no baseline, verdict NO_BASELINE: nothing was compared. Its
 * exit status is 0 if that is accepted, else that of documents that are not comparable. Owned by the caller.
 */
cJSON *ab_gate_no_baseline(ab_gate_side base, ab_gate_side other, const ab_gate_options *options,
                           bool accepted);

/* AB_OK, AB_REGRESSION, AB_NUMERICS, AB_INCONCLUSIVE, AB_NOT_COMPARABLE or AB_INTERNAL (a cell failed), as
 * recorded in the gate document, with the first reason as the message. */
AB_MUST_CHECK ab_status ab_gate_status(const cJSON *gate);

/* Prints the verdict as text. */
void ab_gate_print(const cJSON *gate, FILE *out);

/* The verdict for CI systems: Markdown for a job's summary; JUnit with one case per lane of each cell
 * (inconclusive: skipped); GitHub annotation lines. */
void ab_gate_markdown(const cJSON *gate, FILE *out);
AB_MUST_CHECK ab_status ab_gate_junit(const cJSON *gate, FILE *out);
void ab_gate_github(const cJSON *gate, FILE *out);

/* Decides the time metrics of documents of one session. *undecided: number of metrics that further rounds
 * may decide. Used during measurement. */
AB_MUST_CHECK ab_status ab_gate_undecided(const cJSON *base, const cJSON *other,
                                          const ab_gate_options *options, int *undecided);

/* Calibrates the gate on arms with a known difference. documents[0] is the base; documents[i] is the same
 * program with effects[i] of added work (0 for the identical arm). All are from one session and have one
 * timed cell. Disjoint windows of 30 rounds are the trials. The calibration document (schema
 * "ampbench-gate-calibration") is owned by the caller. */
AB_MUST_CHECK ab_status ab_gate_calibrate(const cJSON *const *documents, const double *effects, int arms,
                                          const ab_gate_options *options, cJSON **calibration);
/* Loads a calibration document; AB_INPUT if it is of another kind. */
AB_MUST_CHECK ab_status ab_gate_load_calibration(const char *path, cJSON **calibration);
void ab_gate_calibration_print(const cJSON *calibration, FILE *out);

AB_END_DECLS

#endif
