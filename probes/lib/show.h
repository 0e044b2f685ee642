/* Showing tensors: those that can be read are counted without the lock, and their counts wait for the end of
 * the step. Called without the lock. */
#ifndef AB_PROBES_LIB_SHOW_H
#define AB_PROBES_LIB_SHOW_H

#include "probes/lib/handle.h"

#include <fenv.h>

AB_BEGIN_DECLS

/* Arithmetic as C has it at the start, whatever the caller set: subnormals kept, no traps, round to nearest.
 * *callers is what fesetenv takes to give it back. */
void ab_lib_own_arithmetic(fenv_t *callers);

/* Shows tensors; fills in their results and *seen. */
AB_MUST_CHECK ab_status ab_lib_show(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors,
                                    int32_t count, ampprobe_seen *seen);

/* Waits for what GPUs are counting and adds it to what is pending. Callers hold the lock. */
AB_MUST_CHECK ab_status ab_lib_land_all(ampprobe *p);

/* Whether a tensor is one of a known thing in a role that it can have. Callers hold the lock. */
bool ab_lib_is_known(const ampprobe *p, const ampprobe_tensor *tensor);

AB_END_DECLS

#endif
