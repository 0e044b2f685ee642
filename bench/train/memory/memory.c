/* Allocates a plan's tensors; operations on whole tensors. */
#include "bench/train/memory/memory.h"

#include "kernels/backend/fallback.h"

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
