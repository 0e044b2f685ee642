/* Records of training loops that are not ampbench's: their cells have observed_by "probe" (libampprobe wrote
 * it), "checkpoint" or "log" (bench/ingest read one). What differs from a record of ampbench's own is made
 * equal here when it is read, so that no report asks who wrote it. */
#ifndef AB_REPORTS_RECORD_OBSERVED_H
#define AB_REPORTS_RECORD_OBSERVED_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* Another keeper of journals: *text becomes a newer version of the document at `path`, owned by the caller
 * (free), or NULL if there is none. A failure says why it cannot be read; the document is used as it is then.
 */
typedef ab_status (*ab_observed_newer)(const char *path, char **text);

/* Sets it, once, before documents are loaded. */
void ab_observed_set_newer(ab_observed_newer newer);

/* Puts the newer version of a document that was just read in place of *document, if it is of the same run and
 * the run did not end well. */
AB_MUST_CHECK ab_status ab_observed_continue(const char *path, cJSON **document);

/* Gives every step its loss where an element of `loss` stands for several (loss_stride). Before checks. */
AB_MUST_CHECK ab_status ab_observed_expand(cJSON *document);

/* Puts the origins of inf and NaN that a probe found by running a step again (probe.about.origin) where
 * reports look for them, probes.origin of the first cell. False if there are none, or the cell has its own.
 */
bool ab_observed_place_origins(cJSON *document);

/* Takes them away again. */
void ab_observed_remove_origins(cJSON *document);

/* Puts the first cell of `fp32`, the same loop in fp32, beside the cells of a probe's record as their O0,
 * and computes the summary. AB_NOT_COMPARABLE if either is no probe's record, or the loop is another one;
 * `paths` are for messages. */
AB_MUST_CHECK ab_status ab_observed_set_baseline(cJSON *document, const cJSON *fp32, const char *path,
                                                 const char *baseline_path);

/* Whether a cell is such a baseline: its loop is another one than that which the document's `probe` watched.
 */
bool ab_observed_is_given(const cJSON *cell);

/* How to get a baseline for the cell's record, for messages: "run with --levels O0,...", or for a probe's
 * record how to give one. */
const char *ab_observed_baseline_hint(const cJSON *cell);

/* The level of a probe's record; NULL for others. Borrowed. */
const char *ab_observed_level(const cJSON *document);

/* Whether the document is of a training loop that is not ampbench's. */
bool ab_observed_document(const cJSON *document);

AB_END_DECLS

#endif
