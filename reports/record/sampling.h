/* Which tensors a share is counted of, and how far that of the probed steps may be from that of all steps. */
#ifndef AB_REPORTS_RECORD_SAMPLING_H
#define AB_REPORTS_RECORD_SAMPLING_H

#include "reports/stats/flush_interval.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* Whether a tensor of a cell's probes.tensors belongs to a sum over those of `layer`, or of all layers: NULL;
 * cast_only: over those that were cast. */
bool ab_tensor_counts(const cJSON *tensor, bool cast_only, const char *layer);

typedef enum ab_sampling { AB_EVERY_STEP, AB_TOO_FEW_STEPS, AB_SOME_STEPS } ab_sampling;

/* The interval of a share over all of a cell's steps, from the columns of steps of its tensors; only for
 * AB_SOME_STEPS. AB_EVERY_STEP: the share is exact, or the document does not say how many steps were probed.
 * AB_TOO_FEW_STEPS: fewer than three have no variance. */

/* Of what was flushed, in all tensors or in those that were cast; of one layer, or of all: NULL. */
ab_sampling ab_flushed_of_all_steps(const cJSON *cell, bool cast_only, const char *layer,
                                    ab_flush_interval *interval);

/* Of the weight updates that were lost. */
ab_sampling ab_lost_of_all_steps(const cJSON *cell, ab_flush_interval *interval);

AB_END_DECLS

#endif
