/* Running statistics set aside and put back. Frozen ones are not touched by a step, and are left out. */
#include "bench/train/cell/cell_state.h"

#include <stdlib.h>

/* The i-th parameter of the plan if a training step writes it without training it, else NULL. */
static ab_tensor *buffer_at(const ab_cell *cell, int i) {
    const ab_plan_param *param = &cell->plan->param[i];
    return ab_cell_param_spec(cell, param)->kind == AB_PARAM_BUFFER ? &cell->tensor[param->stored] : NULL;
}

static size_t bytes_of(const ab_tensor *tensor) {
    return ab_format_bytes(tensor->format, ab_tensor_count(tensor));
}

ab_status ab_cell_keep_buffers(const ab_cell *cell, void **copy) {
    size_t bytes = 1;
    for (int i = 0; i < cell->plan->params; i++)
        if (buffer_at(cell, i)) bytes += bytes_of(buffer_at(cell, i));
    char *to = *copy = malloc(bytes);
    if (!to) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int i = 0; i < cell->plan->params; i++) {
        const ab_tensor *buffer = buffer_at(cell, i);
        if (!buffer) continue;
        ab_status status = ab_tensor_download(buffer, to);
        if (status != AB_OK) free(*copy);
        if (status != AB_OK) return status;
        to += bytes_of(buffer);
    }
    return AB_OK;
}

ab_status ab_cell_put_buffers(ab_cell *cell, const void *copy) {
    const char *from = copy;
    for (int i = 0; i < cell->plan->params; i++) {
        ab_tensor *buffer = buffer_at(cell, i);
        if (!buffer) continue;
        AB_TRY(ab_tensor_upload(buffer, from));
        from += bytes_of(buffer);
    }
    return AB_OK;
}
