/* Showing tensors: those that can be read are counted without the lock, and their counts wait for the end of
 * the step. Called without the lock. */
#ifndef AB_PROBES_LIB_SHOW_H
#define AB_PROBES_LIB_SHOW_H

#include "probes/lib/handle.h"

#include <fenv.h>

AB_BEGIN_DECLS

/* What a call is about. */
typedef struct ab_lib_call {
    int32_t group;
    uint32_t flags; /* AMPPROBE_ALL ... */
    bool gradients; /* of parameters, sampled as the governor says */
} ab_lib_call;

/* Arithmetic as C has it at the start, whatever the caller set: subnormals kept, no traps, round to nearest.
 * *callers is what fesetenv takes to give it back. */
void ab_lib_own_arithmetic(fenv_t *callers);

/* Shows tensors; fills in their results and *seen. */
AB_MUST_CHECK ab_status ab_lib_show(ampprobe *p, const ab_lib_call *call, ampprobe_tensor *tensors,
                                    int32_t count, ampprobe_seen *seen);

/* Whether a tensor is one of a known thing in a role that it can have. Callers hold the lock. */
bool ab_lib_is_known(const ampprobe *p, const ampprobe_tensor *tensor);

AB_END_DECLS

#endif
