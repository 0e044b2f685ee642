/* Lost updates of somebody else's optimizer, from a sample of each parameter's values: an update that is not
 * zero is lost if the stored weight is what it was. What the update was is computed from the optimizer's
 * state where the optimizer is sgd, adam or adamw and its constants are known; elsewhere a value with a
 * gradient counts as updated, and energies are not known. Callers hold the lock. */
#ifndef AB_PROBES_LIB_UPDATES_H
#define AB_PROBES_LIB_UPDATES_H

#include "probes/lib/handle.h"

AB_BEGIN_DECLS

/* Keeps a sample of a readable weight. */
AB_MUST_CHECK ab_status ab_lib_update_before(ampprobe *p, const ampprobe_tensor *weight);

/* Compares with the sample; `with`: gradient, state 0, state 1 of the same parameter, NULL where there is
 * none. What it finds waits for the end of the step. No sample, or one of another size: nothing. */
AB_MUST_CHECK ab_status ab_lib_update_after(ampprobe *p, int32_t group, const ampprobe_tensor *weight,
                                            const ampprobe_tensor *const with[3]);

AB_END_DECLS

#endif
