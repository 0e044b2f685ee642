/* Distribution of tensors over the range of a half format; shared by the probes of gradients, activations,
 * weights and optimizer states. Per tensor: an exponent histogram; counts of zero, flushed, subnormal,
 * normal, overflowed, inf and NaN, in total and over the steps; the margin to overflow. The size does not
 * depend on the length of the run. */
#ifndef AB_PROBES_RANGE_H
#define AB_PROBES_RANGE_H

#include "probes/probe.h"

AB_BEGIN_DECLS

typedef struct ab_ranges ab_ranges;

/* For the setup's tensors of the given roles; *ranges is an ab_ranges, owned by the caller. Error messages
 * name `probe`. */
AB_MUST_CHECK ab_status ab_ranges_create(const char *probe, const ab_probe_setup *setup, unsigned roles,
                                         void **ranges);
void ab_ranges_destroy(void *ranges); /* NULL is a no-op */

/* As in ab_probe_kind. */
void ab_ranges_observe(void *ranges, int tensor, int thread, const float *values, int64_t n);
void ab_ranges_count(void *ranges, int tensor, const struct ab_census *census);
void ab_ranges_step_end(void *ranges, int64_t step);

/* Writes the keys steps_probed and format. */
void ab_ranges_report_head(const ab_ranges *ranges, ab_probe_sink *sink);

/* Writes the array `key` with one object per tensor of these roles. */
void ab_ranges_report(const ab_ranges *ranges, const char *key, unsigned roles, ab_probe_sink *sink);

AB_END_DECLS

#endif
