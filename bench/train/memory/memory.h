/* The tensors of a plan, allocated on one device. All accesses to values of a cell go through this struct or
 * through ab_tensor_read and ab_tensor_write. Independent of steps, optimizers and probes. */
#ifndef AB_BENCH_TRAIN_MEMORY_MEMORY_H
#define AB_BENCH_TRAIN_MEMORY_MEMORY_H

#include "bench/amp/plan/plan.h"
#include "kernels/backend/backend.h"

AB_BEGIN_DECLS

typedef struct ab_cell_memory {
    const ab_plan *plan;       /* borrowed */
    const ab_backend *backend; /* of the device */
    ab_mem *mem;               /* owned: all blocks, counted by category; NULL: described only */
    ab_tensor *tensor;         /* [plan->tensors]; owned */
} ab_cell_memory;

/* Allocates every tensor of the plan, with id -1. `memory` must be all zero; `limit`: bytes, 0: none. Errors:
 * AB_NO_MEMORY or device errors. ab_cell_memory_fini frees everything, also after an error. */
AB_MUST_CHECK ab_status ab_cell_memory_init(ab_cell_memory *memory, const ab_plan *plan,
                                            const ab_device *device, int64_t limit);
/* The same tensors without memory: their data are NULL. For what depends on shapes alone. */
AB_MUST_CHECK ab_status ab_cell_memory_describe(ab_cell_memory *memory, const ab_plan *plan,
                                                const ab_device *device);
void ab_cell_memory_fini(ab_cell_memory *memory);

/* Tensor `number`; NULL for AB_NONE. */
ab_tensor *ab_cell_memory_tensor(const ab_cell_memory *memory, int number);

/* Bytes of a tensor in its storage format; of ids 4 each. */
size_t ab_cell_memory_bytes(const ab_tensor *tensor);

/* Fills tensor `number` with zeros; a no-op for AB_NONE. */
AB_MUST_CHECK ab_status ab_cell_memory_zero(const ab_cell_memory *memory, int number);

/* dst = src in dst's format; dst = round(dst + src). Runs on the device, or on the host if the device does
 * not support these formats. Half results are shown to exec->observer. */
AB_MUST_CHECK ab_status ab_cell_memory_cast(const ab_cell_memory *memory, const ab_exec *exec, ab_tensor *dst,
                                            const ab_tensor *src);
AB_MUST_CHECK ab_status ab_cell_memory_add(const ab_cell_memory *memory, const ab_exec *exec, ab_tensor *dst,
                                           const ab_tensor *src);

AB_END_DECLS

#endif
