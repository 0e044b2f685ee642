/* The chosen probes behind one observer and one watch, and what each of them costs. */
#ifndef AB_PROBES_SET_H
#define AB_PROBES_SET_H

#include "probes/probe.h"

AB_BEGIN_DECLS

typedef struct ab_probe_set ab_probe_set;

/* A set of the probes in `chosen` (bits as in probe.h), which do not exist yet: first the step loop must be
 * told what to show (ab_probe_set_watch), then it can say which tensors there are (ab_probe_set_start).
 * `now_ns` is a clock for the costs, or NULL. */
AB_MUST_CHECK ab_status ab_probe_set_create(uint64_t chosen, int64_t (*now_ns)(void), ab_probe_set **set);
void ab_probe_set_destroy(ab_probe_set *set); /* NULL is a no-op */

/* What the step loop has to show; its functions belong to the set. */
ab_watch ab_probe_set_watch(ab_probe_set *set);

/* Creates the probes. What `setup` points to is borrowed for the set's life. */
AB_MUST_CHECK ab_status ab_probe_set_start(ab_probe_set *set, const ab_probe_setup *setup);

/* For probed steps; after start. */
ab_observer *ab_probe_set_observer(ab_probe_set *set);
void ab_probe_set_step_end(ab_probe_set *set, int64_t step);

int64_t ab_probe_set_steps(const ab_probe_set *set); /* probed so far */

/* Nanoseconds spent in probes so far, all threads together divided by their number: an estimate of how much
 * longer the probed steps took. */
int64_t ab_probe_set_cost_ns(const ab_probe_set *set);

/* Writes every probe's keys, and "costs": what each has cost, on all threads together. steps_probed, format
 * and tensors are there whether or not gradients are probed. */
void ab_probe_set_report(const ab_probe_set *set, ab_probe_sink *sink);

AB_END_DECLS

#endif
