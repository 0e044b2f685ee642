/* Looking inside a cell: tensors by name, weights to a file, memory, implementations. Changes nothing. */
#include "bench/train/cell/cell_state.h"

#include "bench/tensorfile/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ab_plan *ab_cell_plan(const ab_cell *cell) { return cell->plan; }
const ab_scaler *ab_cell_scaler(const ab_cell *cell) { return &cell->scaler[0]; }
int64_t ab_cell_steps(const ab_cell *cell) { return cell->steps; }
int64_t ab_cell_advanced(const ab_cell *cell) { return cell->advanced; }
int64_t ab_cell_bytes(const ab_cell *cell, ab_mem_category category) {
    return ab_mem_bytes(cell->mem, category);
}
int64_t ab_cell_bytes_total(const ab_cell *cell) { return ab_mem_total(cell->mem); }

const char *ab_cell_describe(const ab_cell *cell, int node, const char *pass) {
    const ab_net_op *op = ab_plan_node_op(cell->plan, &cell->plan->node[node]);
    const ab_op *run = cell->run[node];
    return op && run->describe ? run->describe(&cell->io[node], pass) : NULL;
}

/* The fp32 master where there is one: what the optimizer works on. */
static int best_copy(const ab_plan *plan, int tensor) {
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->stored == tensor && param->master != AB_NONE) return param->master;
        if (param->grad == tensor && param->master_grad != AB_NONE) return param->master_grad;
        if (param->grad == tensor && param->total != AB_NONE) return param->total;
    }
    return tensor;
}

ab_status ab_cell_read(const ab_cell *cell, const char *name, ab_shape *shape, float *values) {
    int found = ab_plan_find(cell->plan, name);
    if (found == AB_NONE || cell->plan->tensor[found].transient || !cell->plan->tensor[found].format)
        return ab_fail(AB_CONFIG, "no tensor '%s' is kept between steps", name);
    const ab_tensor *tensor = &cell->tensor[best_copy(cell->plan, found)];
    *shape = tensor->shape;
    return values ? ab_tensor_read(tensor, values) : AB_OK;
}

static void free_items(ab_safetensor_item *items, char (*names)[AB_PLAN_NAME], int count) {
    for (int i = 0; items && i < count; i++) free((void *)(uintptr_t)items[i].data);
    free(items);
    free(names);
}

ab_status ab_cell_save(const ab_cell *cell, const char *path) {
    ab_status status = AB_OK;
    int count = 0;
    const int params = cell->plan->params;
    ab_safetensor_item *items = calloc((size_t)params + 1, sizeof *items);
    char(*names)[AB_PLAN_NAME] = calloc((size_t)params + 1, sizeof *names);
    if (!items || !names) {
        status = ab_fail(AB_NO_MEMORY, "saving weights: out of memory");
        goto out;
    }
    for (int p = 0; p < params; p++) {
        if (cell->plan->param[p].owner != AB_NONE) continue; /* saved as its owner's */
        ab_safetensor_item *item = &items[count++];
        item->name = ab_cell_param_name(cell, &cell->plan->param[p], names[p]);
        int64_t n = ab_shape_count(&ab_cell_param_spec(cell, &cell->plan->param[p])->shape);
        float *values = malloc((size_t)n * sizeof *values);
        item->data = values;
        if (!values) {
            status = ab_fail(AB_NO_MEMORY, "saving weights: out of memory");
            goto out;
        }
        AB_TRY_GOTO(ab_cell_read(cell, item->name, &item->shape, values));
    }
    const char *metadata[] = {"format", "pt", "network", cell->plan->net->name, NULL};
    AB_TRY_GOTO(ab_safetensors_write(path, items, count, metadata));
out:
    free_items(items, names, count);
    return status;
}
