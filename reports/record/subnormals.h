/* Are steps with subnormal operands slower than steps without? From a cell's step times and the probe
 * `subnormals`.
 *
 * The probe counts by columns of steps (at most 128). Columns are laden if their share of subnormal operands
 * is at least half of the largest column's, and clean if it is at most a sixteenth of that; a largest share
 * below one in a thousand says nothing. What is compared are the columns' medians of unprobed step times,
 * within each process: the Hodges-Lehmann ratio of laden to clean columns (stats.h). It counts if in every
 * process the rank-sum test rejects "at most a tenth slower" at 1 %. The processes are apart in time, so a
 * load of the machine that changes once does not do the same in each; a run of one round has one process, and
 * its ratio may be such a load's. The numbers are in thresholds.def. */
#ifndef AB_REPORTS_RECORD_SUBNORMALS_H
#define AB_REPORTS_RECORD_SUBNORMALS_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* *object: the summary's `subnormal_slowdown`, owned by the caller; NULL if steps with subnormal operands are
 * not slower, or if the record cannot say. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_subnormal_slowdown(const cJSON *cell, cJSON **object);

/* Writes a summarised cell's slow-down in words, with the option against it; false, and "", if it has none.
 */
bool ab_subnormal_slowdown_text(const cJSON *cell, char *text, size_t size);

AB_END_DECLS

#endif
