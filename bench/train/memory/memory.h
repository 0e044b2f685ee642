/* The tensors of a plan, allocated on one device. All accesses to values of a cell go through this struct or
 * through ab_tensor_read and ab_tensor_write. Independent of steps, optimizers and probes. */
#ifndef AB_BENCH_TRAIN_MEMORY_MEMORY_H
#define AB_BENCH_TRAIN_MEMORY_MEMORY_H

#include "bench/amp/plan/plan.h"
#include "kernels/backend/backend.h"
#include "probes/probe.h"

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

/* Further replicas, whose passes go on beside each other: they share weights and optimizer state, and have
 * places of their own for all that a pass writes. */

/* Allocates the places of one: data[plan->tensors], owned by the caller (free); what they point to belongs to
 * `memory`, in the categories of the tensors. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_cell_memory_replica(const ab_cell_memory *memory, void ***data);

/* Bytes that a replica adds to a category, for plans. */
int64_t ab_cell_memory_replica_bytes(const ab_plan *plan, ab_mem_category category);

/* The tensors' places are now data[]. For those of the first replica: ab_cell_memory_places, which allocates
 * them (free). */
void ab_cell_memory_use(const ab_cell_memory *memory, void *const *data);
AB_MUST_CHECK ab_status ab_cell_memory_places(const ab_cell_memory *memory, void ***data);

/* Saves and restores running statistics (batch norm), so that a training step can run without changing the
 * cell. */

/* Copies all of them in their storage format to memory that the caller frees. AB_NO_MEMORY; *copy is NULL
 * after an error. */
AB_MUST_CHECK ab_status ab_running_stats_keep(const ab_cell_memory *memory, void **copy);

/* Restores a copy. */
AB_MUST_CHECK ab_status ab_running_stats_restore(const ab_cell_memory *memory, const void *copy);

/* The parameters of a plan: their specification in the network, and which are trained. Counts and names; no
 * values. */

/* The network's specification of a parameter. */
static inline const ab_param_spec *ab_params_spec(const ab_plan *plan, const ab_plan_param *param) {
    return &plan->net->op[param->net_op].param[param->index];
}

/* Writes its name, such as "conv1.weight", to name[AB_PLAN_NAME] and returns `name`. */
const char *ab_params_name(const ab_plan *plan, const ab_plan_param *param, char *name);

/* Number of the tensor that the optimizer updates: the fp32 master if there is one. */
static inline int ab_params_weight(const ab_plan_param *param) {
    return param->master != AB_NONE ? param->master : param->stored;
}

/* Elements of the largest parameter; at least 1. */
int64_t ab_params_largest(const ab_plan *plan);

/* Allocates a buffer for the elements of the largest parameter; the caller frees it. NULL: out of memory. */
float *ab_params_room(const ab_plan *plan);

/* The parameters that the optimizer updates, in the plan's order. */
typedef struct ab_trained_params {
    int count;
    ab_probe_param *about; /* [count]; owned */
    int *place;            /* [plan->params]: index among the trained parameters, or -1; owned */
} ab_trained_params;

/* Lists the trained parameters. `states`: the optimizer has state. Errors: AB_NO_MEMORY.
 * ab_trained_params_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_trained_params_init(ab_trained_params *trained, const ab_plan *plan, bool states);
void ab_trained_params_fini(ab_trained_params *trained);

AB_END_DECLS

#endif
