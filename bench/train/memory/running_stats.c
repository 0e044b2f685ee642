/* Copies of buffers, concatenated. Frozen ones are copied too; a step does not change them. */
#include "bench/train/memory/running_stats.h"

#include "bench/train/memory/params.h"

#include <stdlib.h>

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
