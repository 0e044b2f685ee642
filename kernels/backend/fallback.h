/* Host fallback for ops that a device lacks: downloads the operands, runs the CPU's op, uploads the
 * results. Also for optional functions of backend.h. Same bits as on the CPU; the record names the
 * fallback. */
#ifndef AB_KERNELS_BACKEND_FALLBACK_H
#define AB_KERNELS_BACKEND_FALLBACK_H

#include "kernels/backend/backend.h"
#include "kernels/ops/op.h"

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

/* Host mirror: a host copy of one op's tensors, for the CPU fallback of a missing op and for probes that
 * read operands. Exact; costs a transfer each way. */

typedef struct ab_host_mirror ab_host_mirror;

/* Sets of an op's tensors. */
enum {
    AB_MIRROR_IN = 1,
    AB_MIRROR_PARAM = 2,
    AB_MIRROR_OUT = 4,
    AB_MIRROR_SAVED = 8,
    AB_MIRROR_DOUT = 16,
    AB_MIRROR_DIN = 32,
    AB_MIRROR_DPARAM = 64,
    AB_MIRROR_BUFFERS = 128 /* parameters without a gradient */
};

/* Allocates a copy of every tensor of `io` (whose data may still be unset). AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_host_mirror_create(const ab_op_io *io, ab_host_mirror **mirror);
void ab_host_mirror_destroy(ab_host_mirror *mirror); /* NULL is a no-op */

/* The copy, with the current attributes, instance and version of `io`. Owned by the mirror. */
ab_op_io *ab_host_mirror_io(ab_host_mirror *mirror, const ab_op_io *io);

/* Copies the sets of tensors from, or to, the device. `inputs`: bit mask of the inputs to copy. */
AB_MUST_CHECK ab_status ab_host_mirror_pull(ab_host_mirror *mirror, const ab_op_io *io, unsigned sets,
                                            unsigned inputs);
AB_MUST_CHECK ab_status ab_host_mirror_push(ab_host_mirror *mirror, const ab_op_io *io, unsigned sets);

AB_END_DECLS

#endif
