/* Gradients of one batch to a file, for simulations of ranks. */
#include "bench/tensorfile/safetensors.h"
#include "bench/train/cell/cell.h"
#include "bench/train/cell/parts.h"

#include <stdlib.h>

static void free_items(ab_safetensor_item *items, int count) {
    for (int i = 0; items && i < count; i++) free((void *)(uintptr_t)items[i].data);
    free(items);
}

static ab_status read_items(const ab_cell *cell, ab_safetensor_item *items) {
    for (int i = 0; i < cell->trained.count; i++) {
        const ab_tensor *gradient = cell->gradients.item[i].from;
        float *value = malloc((size_t)ab_tensor_count(gradient) * sizeof *value + 1);
        items[i] = (ab_safetensor_item){cell->trained.about[i].name, gradient->shape, .data = value,
                                        .format = gradient->format};
        if (!value) return ab_fail(AB_NO_MEMORY, "saving gradients: out of memory");
        AB_TRY(ab_tensor_read(gradient, value));
    }
    return AB_OK;
}

ab_status ab_cell_save_gradients(ab_cell *cell, const char *path) {
    const int count = cell->trained.count;
    const char *metadata[] = {"format", "pt", "network", cell->plan->net->name, NULL};
    float loss;
    AB_TRY(ab_cell_dry_run(cell, 1, &loss));
    ab_safetensor_item *items = calloc((size_t)count + 1, sizeof *items);
    if (!items) return ab_fail(AB_NO_MEMORY, "saving gradients: out of memory");
    ab_status status = read_items(cell, items);
    if (status == AB_OK) status = ab_safetensors_write(path, items, count, metadata);
    free_items(items, count);
    return status;
}
