/* An op that a device lacks: downloaded operands, the CPU's op, uploaded results. Also what a table of
 * backend.h may leave out. The same bits as on the CPU; the record says that it ran there. */
#ifndef AB_KERNELS_BACKEND_FALLBACK_H
#define AB_KERNELS_BACKEND_FALLBACK_H

#include "kernels/backend/backend.h"

AB_BEGIN_DECLS

/* Runs io->op on the host, for tensors of any device. Its workspace and state are host memory of its own: it
 * asks for none. */
extern const ab_op ab_op_fallback;

/* backend->cast and accumulate for tables that have none. */
AB_MUST_CHECK ab_status ab_fallback_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
AB_MUST_CHECK ab_status ab_fallback_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

/* backend->unscale, for tables that have none. */
AB_MUST_CHECK ab_status ab_fallback_unscale(const ab_exec *exec, const ab_unscale_item *item, int items,
                                            float inverse, bool *found);

/* A host tensor with the values of `tensor`, in memory of its own; ab_host_copy_free releases it. */
AB_MUST_CHECK ab_status ab_host_copy(const ab_tensor *tensor, ab_tensor *copy);
void ab_host_copy_free(ab_tensor *copy); /* data may be NULL */

AB_END_DECLS

#endif
