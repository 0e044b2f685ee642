/* Host fallback for ops that a device lacks: downloads the operands, runs the CPU's op, uploads the
 * results. Also for optional functions of backend.h. Same bits as on the CPU; the record names the
 * fallback. */
#ifndef AB_KERNELS_BACKEND_FALLBACK_H
#define AB_KERNELS_BACKEND_FALLBACK_H

#include "kernels/backend/backend.h"

AB_BEGIN_DECLS

/* Runs io->op on the host, for tensors of any device. It allocates its own host workspace and state and
 * requests none. */
extern const ab_op ab_op_fallback;

/* backend->cast and accumulate for tables without them. */
AB_MUST_CHECK ab_status ab_fallback_cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);
AB_MUST_CHECK ab_status ab_fallback_accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src);

/* backend->unscale for tables without it. */
AB_MUST_CHECK ab_status ab_fallback_unscale(const ab_exec *exec, const ab_unscale_item *item, int items,
                                            float inverse, bool *found);

/* A host tensor with the values of `tensor`, in newly allocated memory; free with ab_host_copy_free. */
AB_MUST_CHECK ab_status ab_host_copy(const ab_tensor *tensor, ab_tensor *copy);
void ab_host_copy_free(ab_tensor *copy); /* data may be NULL */

AB_END_DECLS

#endif
