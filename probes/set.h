/* The selected probes behind one observer and one watch, and the cost of each probe. */
#ifndef AB_PROBES_SET_H
#define AB_PROBES_SET_H

#include "probes/probe.h"

AB_BEGIN_DECLS

typedef struct ab_probe_set ab_probe_set;

/* Creates a set of the probes in `chosen` (bits as in probe.h). The probes themselves are created by
 * ab_probe_set_start, after the step loop got ab_probe_set_watch and has listed its tensors. `now_ns`: clock
 * for the costs, or NULL. */
AB_MUST_CHECK ab_status ab_probe_set_create(uint64_t chosen, int64_t (*now_ns)(void), ab_probe_set **set);
void ab_probe_set_destroy(ab_probe_set *set); /* NULL is a no-op */

/* The watch to pass to the step loop; its callbacks belong to the set. */
ab_watch ab_probe_set_watch(ab_probe_set *set);

/* Creates the probes. Everything that `setup` points to is borrowed for the set's lifetime. */
AB_MUST_CHECK ab_status ab_probe_set_start(ab_probe_set *set, const ab_probe_setup *setup);

/* For probed steps; after start. */
ab_observer *ab_probe_set_observer(ab_probe_set *set);
void ab_probe_set_step_end(ab_probe_set *set, int64_t step);

int64_t ab_probe_set_steps(const ab_probe_set *set); /* probed so far */

/* Nanoseconds spent in probes so far, summed over threads and divided by their number: an estimate of the
 * extra wall time of the probed steps. */
int64_t ab_probe_set_cost_ns(const ab_probe_set *set);

/* Writes every probe's keys, and "costs": the time of each probe summed over all threads. steps_probed,
 * format and tensors are always written, whether or not gradients are probed. */
void ab_probe_set_report(const ab_probe_set *set, ab_probe_sink *sink);

AB_END_DECLS

#endif
