/* The optimizer step on the CPU (ab_backend.update). Internal to kernels/backend. */
#ifndef AB_KERNELS_BACKEND_UPDATE_CPU_H
#define AB_KERNELS_BACKEND_UPDATE_CPU_H

#include "kernels/backend/backend.h"

AB_BEGIN_DECLS

/* As ab_backend.update. Results have the bits of the scalar formula, at every CPU level and with any number
 * of threads. AB_UNAVAILABLE, with no changes made, for a kind whose step size needs norms. */
AB_MUST_CHECK ab_status ab_cpu_update(const ab_update_item *item, int items, int kind,
                                      const ab_update_row *row);

AB_END_DECLS

#endif
