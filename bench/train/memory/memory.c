/* Allocates a plan's tensors; operations on whole tensors. */
#include "bench/train/memory/memory.h"

#include "kernels/backend/fallback.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>

/* One allocation per category if allocating is slow. */
static ab_status reserve_tensors(const ab_cell_memory *memory) {
    const ab_plan *plan = memory->plan;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    if (memory->backend->host_memory) return AB_OK;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) bytes[c] = ab_mem_rounded(plan->pool_bytes[c]);
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        if (t->shares == AB_NONE && !t->transient) bytes[t->category] += ab_mem_rounded(t->bytes);
    }
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        AB_TRY(ab_mem_reserve(memory->mem, (ab_mem_category)c, bytes[c]));
    return AB_OK;
}

/* Shapes, formats and device of all tensors. */
static void describe_tensors(const ab_cell_memory *memory, const ab_device *device) {
    for (int i = 0; i < memory->plan->tensors; i++) {
        const ab_plan_tensor *t = &memory->plan->tensor[i];
        memory->tensor[i] = (ab_tensor){.shape = t->shape, .format = t->format, .device = device, .id = -1};
    }
}

static ab_status allocate_tensors(const ab_cell_memory *memory) {
    const ab_plan *plan = memory->plan;
    char *pool[AB_MEM_CATEGORY_COUNT];
    AB_TRY(reserve_tensors(memory));
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        AB_TRY(ab_mem_alloc(memory->mem, (ab_mem_category)c, plan->pool_bytes[c], (void **)&pool[c]));
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        ab_tensor *tensor = &memory->tensor[i];
        if (t->shares != AB_NONE) continue;
        if (t->transient)
            tensor->data = pool[t->category] + t->offset;
        else
            AB_TRY(ab_mem_alloc(memory->mem, t->category, t->bytes, &tensor->data));
    }
    for (int i = 0; i < plan->tensors; i++) { /* a shared tensor precedes those that share it */
        if (plan->tensor[i].shares != AB_NONE)
            memory->tensor[i].data = memory->tensor[plan->tensor[i].shares].data;
    }
    return AB_OK;
}

/* Whether replicas share a tensor: weights, in every format, and what an optimizer keeps. */
static bool is_shared(const ab_plan *plan, int i) {
    const ab_mem_category category = plan->tensor[i].category;
    if (category == AB_MEM_weights || category == AB_MEM_master_weights || category == AB_MEM_optimizer_state)
        return true;
    for (int p = 0; category == AB_MEM_casts && p < plan->params; p++)
        if (plan->param[p].used == i) return true;
    return false;
}

/* The pools of transient tensors are doubled whole; the others one by one. */
int64_t ab_cell_memory_replica_bytes(const ab_plan *plan, ab_mem_category category) {
    int64_t bytes = 0;
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        if (t->category == category && t->shares == AB_NONE && !t->transient && !is_shared(plan, i))
            bytes += ab_mem_rounded(t->bytes);
    }
    return bytes + ab_mem_rounded(plan->pool_bytes[category]);
}

ab_status ab_cell_memory_places(const ab_cell_memory *memory, void ***data) {
    *data = calloc((size_t)memory->plan->tensors + 1, sizeof **data);
    if (!*data) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int i = 0; i < memory->plan->tensors; i++) (*data)[i] = memory->tensor[i].data;
    return AB_OK;
}

ab_status ab_cell_memory_replica(const ab_cell_memory *memory, void ***data) {
    const ab_plan *plan = memory->plan;
    char *pool[AB_MEM_CATEGORY_COUNT];
    AB_TRY(ab_cell_memory_places(memory, data));
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        AB_TRY(ab_mem_alloc(memory->mem, (ab_mem_category)c, plan->pool_bytes[c], (void **)&pool[c]));
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        if (t->shares != AB_NONE || is_shared(plan, i)) continue;
        if (t->transient)
            (*data)[i] = pool[t->category] + t->offset;
        else
            AB_TRY(ab_mem_alloc(memory->mem, t->category, t->bytes, &(*data)[i]));
    }
    for (int i = 0; i < plan->tensors; i++)
        if (plan->tensor[i].shares != AB_NONE) (*data)[i] = (*data)[plan->tensor[i].shares];
    return AB_OK;
}

void ab_cell_memory_use(const ab_cell_memory *memory, void *const *data) {
    for (int i = 0; i < memory->plan->tensors; i++) memory->tensor[i].data = data[i];
}

ab_status ab_cell_memory_describe(ab_cell_memory *memory, const ab_plan *plan, const ab_device *device) {
    memory->plan = plan;
    memory->backend = ab_backend_of(device);
    memory->tensor = calloc((size_t)plan->tensors, sizeof *memory->tensor);
    if (!memory->tensor) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    describe_tensors(memory, device);
    return AB_OK;
}

ab_status ab_cell_memory_init(ab_cell_memory *memory, const ab_plan *plan, const ab_device *device,
                              int64_t limit) {
    AB_TRY(ab_cell_memory_describe(memory, plan, device));
    AB_TRY(ab_mem_create(&memory->mem, device, limit));
    return allocate_tensors(memory);
}

void ab_cell_memory_fini(ab_cell_memory *memory) {
    ab_mem_destroy(memory->mem);
    free(memory->tensor);
    *memory = (ab_cell_memory){.mem = NULL};
}

ab_tensor *ab_cell_memory_tensor(const ab_cell_memory *memory, int number) {
    return number == AB_NONE ? NULL : &memory->tensor[number];
}

size_t ab_cell_memory_bytes(const ab_tensor *tensor) {
    const int64_t count = ab_tensor_count(tensor);
    return tensor->format ? ab_format_bytes(tensor->format, count) : (size_t)count * sizeof(int32_t);
}

ab_status ab_cell_memory_zero(const ab_cell_memory *memory, int number) {
    const ab_tensor *tensor = ab_cell_memory_tensor(memory, number);
    return tensor ? tensor->device->fill_zero(tensor->data, ab_cell_memory_bytes(tensor)) : AB_OK;
}

ab_status ab_cell_memory_cast(const ab_cell_memory *memory, const ab_exec *exec, ab_tensor *dst,
                              const ab_tensor *src) {
    ab_status status = memory->backend->cast(exec, dst, src);
    return status == AB_UNAVAILABLE ? ab_fallback_cast(exec, dst, src) : status;
}

ab_status ab_cell_memory_add(const ab_cell_memory *memory, const ab_exec *exec, ab_tensor *dst,
                             const ab_tensor *src) {
    ab_status status = memory->backend->accumulate(exec, dst, src);
    return status == AB_UNAVAILABLE ? ab_fallback_accumulate(exec, dst, src) : status;
}

/* Copies of buffers, concatenated. Frozen ones are copied too; a step does not change them. */

/* The i-th parameter of the plan if a training step writes it without training it, else NULL. */
static ab_tensor *buffer_at(const ab_cell_memory *memory, int i) {
    const ab_plan_param *param = &memory->plan->param[i];
    return ab_params_spec(memory->plan, param)->kind == AB_PARAM_BUFFER ? &memory->tensor[param->stored]
                                                                        : NULL;
}

static size_t bytes_of_all(const ab_cell_memory *memory) {
    size_t bytes = 0;
    for (int i = 0; i < memory->plan->params; i++)
        if (buffer_at(memory, i)) bytes += ab_cell_memory_bytes(buffer_at(memory, i));
    return bytes;
}

ab_status ab_running_stats_keep(const ab_cell_memory *memory, void **copy) {
    char *to = *copy = malloc(bytes_of_all(memory) + 1);
    if (!to) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    ab_status status = AB_OK;
    for (int i = 0; i < memory->plan->params; i++) {
        const ab_tensor *buffer = buffer_at(memory, i);
        if (!buffer) continue;
        AB_TRY_GOTO(ab_tensor_download(buffer, to));
        to += ab_cell_memory_bytes(buffer);
    }
    return AB_OK;
out:
    free(*copy);
    *copy = NULL;
    return status;
}

ab_status ab_running_stats_restore(const ab_cell_memory *memory, const void *copy) {
    const char *from = copy;
    for (int i = 0; i < memory->plan->params; i++) {
        ab_tensor *buffer = buffer_at(memory, i);
        if (!buffer) continue;
        AB_TRY(ab_tensor_upload(buffer, from));
        from += ab_cell_memory_bytes(buffer);
    }
    return AB_OK;
}

/* Names, sizes and the list of trained parameters. */

const char *ab_params_name(const ab_plan *plan, const ab_plan_param *param, char *name) {
    ab_text_exact(name, AB_PLAN_NAME, "%s.%s", plan->net->op[param->net_op].name,
                  ab_params_spec(plan, param)->name);
    return name;
}

int64_t ab_params_largest(const ab_plan *plan) {
    int64_t largest = 1;
    for (int p = 0; p < plan->params; p++) {
        const int64_t n = ab_shape_count(&ab_params_spec(plan, &plan->param[p])->shape);
        largest = n > largest ? n : largest;
    }
    return largest;
}

float *ab_params_room(const ab_plan *plan) { return calloc((size_t)ab_params_largest(plan), sizeof(float)); }

static ab_probe_param describe(const ab_plan *plan, const ab_plan_param *param, bool states) {
    const ab_plan_tensor *weight = &plan->tensor[ab_params_weight(param)];
    return (ab_probe_param){.name = plan->tensor[param->stored].name,
                            .layer = plan->net->op[param->net_op].name,
                            .count = ab_shape_count(&weight->shape),
                            .rows = weight->shape.ndim > 1 ? weight->shape.dim[0] : 0,
                            .format = weight->format,
                            .state_format = states ? plan->tensor[param->state[0]].format : weight->format};
}

ab_status ab_trained_params_init(ab_trained_params *trained, const ab_plan *plan, bool states) {
    const size_t room = (size_t)plan->params + 1;
    *trained = (ab_trained_params){0, calloc(room, sizeof *trained->about), calloc(room, sizeof(int))};
    if (!trained->about || !trained->place) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0; p < plan->params; p++) {
        trained->place[p] = -1;
        if (plan->param[p].grad == AB_NONE) continue;
        trained->about[trained->count] = describe(plan, &plan->param[p], states);
        trained->place[p] = trained->count++;
    }
    return AB_OK;
}

void ab_trained_params_fini(ab_trained_params *trained) {
    free(trained->about);
    free(trained->place);
    *trained = (ab_trained_params){.about = NULL};
}
