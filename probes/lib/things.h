/* The things of a probe (parameters and layers' outputs), found by name and by number, and their tensors, one
 * for each role in which a thing was shown. Callers hold the probe's lock. */
#ifndef AB_PROBES_LIB_THINGS_H
#define AB_PROBES_LIB_THINGS_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Checks descriptions without taking them: AB_CONFIG names the entry. */
AB_MUST_CHECK ab_status ab_lib_things_check(const ampprobe_thing *things, int32_t count);

/* Takes one description: *id is its number. */
AB_MUST_CHECK ab_status ab_lib_thing_take(ampprobe *p, const ampprobe_thing *about, int32_t *id);

/* The number of a layer's output (parameter false) or a parameter called `name`; -1: none. */
int32_t ab_lib_thing_find(const ampprobe *p, const char *name, bool parameter);

/* The tensor of a thing in a slot, made if it is new; *index: into p->tensor. */
AB_MUST_CHECK ab_status ab_lib_tensor_of(ampprobe *p, int32_t thing, int32_t slot, int32_t *index);

/* Whether values of a slot carry the loss scale. */
bool ab_lib_carries_scale(int32_t slot);

/* What is pending of a tensor, to which the caller adds: the tensor is in the list of those from now on. */
ab_lib_pending *ab_lib_wait(ampprobe *p, int32_t tensor);

/* The ledger of a parameter, made if it is new. */
AB_MUST_CHECK ab_status ab_lib_ledger_of(ampprobe *p, int32_t thing, int32_t *index);

/* The time axis of a slot. */
int32_t ab_lib_axis_of(int32_t slot);

/* Frees all of them. */
void ab_lib_things_free(ampprobe *p);

AB_END_DECLS

#endif
