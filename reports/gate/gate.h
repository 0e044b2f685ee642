/* The gate: two result documents in, a verdict with its evidence out. A pure function of the documents, the
 * options and nothing else; the same bits on every compiler.
 *
 * Lanes: `comparable` (same schema, machine, network, batch, ...), `cells` (missing, new, failed), `numerics`
 * (losses, skipped steps, loss scales, flushed and non-finite counts; exact), `work` (bytes by category,
 * casts, FLOPs, kernel launches; exact up to a tolerance), `time` (only of documents that were measured in
 * turns in one session; otherwise advisory) and `drift` (against a pinned document). */
#ifndef AB_REPORTS_GATE_GATE_H
#define AB_REPORTS_GATE_GATE_H

#include "reports/gate/gate_rule.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_gate_options {
    double time_tolerance, memory_tolerance, guard, loss_bound, drift_budget; /* shares; loss_bound 0: bits */
    const char *ignore;          /* fields that may differ, separated by commas; NULL: none */
    bool lenient;                /* missing and new cells are named, and that is all */
    const cJSON *calibration;    /* of `gate --selftest`; NULL: none */
    const char *calibration_ref; /* its file name */
} ab_gate_options;

/* The defaults of `ampbench gate`. */
ab_gate_options ab_gate_options_standard(void);

/* A document and what to call it. */
typedef struct ab_gate_side {
    const cJSON *document; /* summarised; NULL: there is none */
    const char *name;
} ab_gate_side;

/* The gate document (schema "ampbench-gate"); the caller deletes it. That something regressed is not a
 * failure of this call. */
AB_MUST_CHECK ab_status ab_gate_compare(ab_gate_side base, ab_gate_side other, ab_gate_side pinned,
                                        const ab_gate_options *options, cJSON **gate);

/* AB_OK, AB_REGRESSION, AB_NUMERICS, AB_INCONCLUSIVE, AB_NOT_COMPARABLE or AB_INTERNAL (a cell failed): what
 * the gate document says, with the first reason as the message. */
AB_MUST_CHECK ab_status ab_gate_status(const cJSON *gate);

/* The verdict for people. */
void ab_gate_print(const cJSON *gate, FILE *out);

/* The same for CI systems: Markdown for a job's summary; JUnit, a case for each lane of each cell, an
 * inconclusive one skipped; GitHub's annotation lines. */
void ab_gate_markdown(const cJSON *gate, FILE *out);
AB_MUST_CHECK ab_status ab_gate_junit(const cJSON *gate, FILE *out);
void ab_gate_github(const cJSON *gate, FILE *out);

/* Decides the times of documents of one session alone; *undecided: metrics that further rounds may decide.
 * Used while measuring. */
AB_MUST_CHECK ab_status ab_gate_undecided(const cJSON *base, const cJSON *other,
                                          const ab_gate_options *options, int *undecided);

/* What the gate makes of arms whose truth is known. documents[0] is the base, documents[i] the same program
 * with work added: effects[i] (0 for the twin). All are of one session and have one timed cell. Windows of 30
 * rounds that share no round are trials. The calibration document (schema "ampbench-gate-calibration") is the
 * caller's. */
AB_MUST_CHECK ab_status ab_gate_calibrate(const cJSON *const *documents, const double *effects, int arms,
                                          const ab_gate_options *options, cJSON **calibration);
/* Reads one; AB_INPUT if it is something else. */
AB_MUST_CHECK ab_status ab_gate_load_calibration(const char *path, cJSON **calibration);
void ab_gate_calibration_print(const cJSON *calibration, FILE *out);

AB_END_DECLS

#endif
