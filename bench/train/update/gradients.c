/* The backend unscales; if it does not support the formats, the host does. */
#include "bench/train/update/gradients.h"

#include "bench/train/observe/observation.h"
#include "bench/train/pass/backward.h"
#include "kernels/backend/extremes.h"
#include "kernels/backend/fallback.h"

#include <math.h>
#include <stdlib.h>

/* ---- lists ----------------------------------------------------------------------------------- */

/* Whether micro-batches are summed in the masters' fp32 gradients; otherwise the backward pass sums them. */
static bool sums_in_fp32(const ab_gradients *g) {
    const ab_plan *plan = g->memory->plan;
    return g->position->micro_batches > 1 && !ab_backward_by_loss(plan) && !plan->policy.keep.half_sums;
}

bool ab_gradients_end_with_backward(const ab_gradients *g) {
    return !sums_in_fp32(g) && !ab_backward_by_loss(g->memory->plan);
}

static void list_param(ab_gradients *g, const ab_plan_param *param, ab_unscale_item *item) {
    ab_tensor *tensor = g->memory->tensor;
    const int own = param->total != AB_NONE ? param->total : param->grad;
    const bool summed = sums_in_fp32(g);
    item->to = &tensor[param->master_grad != AB_NONE ? param->master_grad : own];
    item->from = summed ? item->to : &tensor[param->grad];
    g->masters = g->masters || param->master != AB_NONE;
}

/* The half tensor that is cast to parameter p's fp32 gradient, and to nothing else. */
static ab_tensor *only_cast(const ab_gradients *g, const ab_plan_param *param) {
    ab_tensor *made = ab_cell_memory_tensor(g->memory, param->used_grad);
    const bool alone = param->owner == AB_NONE && !param->adds && param->sum != param->used_grad;
    const bool plain =
        param->master_grad == AB_NONE && param->total == AB_NONE && g->memory->backend->host_memory;
    if (!alone || !plain) return NULL;
    return g->memory->tensor[param->sum].format == &ab_format_fp32 && ab_format_bytes(made->format, 1) == 2
               ? made
               : NULL;
}

ab_status ab_gradients_init(ab_gradients *g, const ab_cell_memory *memory, const ab_observation *observation,
                            const ab_trained_params *trained, const ab_step_position *position) {
    const size_t room = (size_t)trained->count + 1;
    *g = (ab_gradients){.memory = memory,
                        .observation = observation,
                        .trained = trained,
                        .position = position,
                        .item = calloc(room, sizeof *g->item),
                        .waiting = calloc(room, sizeof *g->waiting),
                        .made = calloc(room, sizeof(ab_tensor *)),
                        .place = calloc(room, sizeof *g->place),
                        .clipped = calloc(room, sizeof(ab_tensor *))};
    if (!g->item || !g->waiting || !g->made || !g->place || !g->clipped)
        return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0; p < memory->plan->params; p++)
        if (trained->place[p] >= 0) {
            list_param(g, &memory->plan->param[p], &g->item[trained->place[p]]);
            g->made[trained->place[p]] = only_cast(g, &memory->plan->param[p]);
        }
    return AB_OK;
}

void ab_gradients_fini(ab_gradients *g) {
    free(g->item);
    free(g->waiting);
    free(g->made);
    free(g->place);
    free(g->clipped);
    *g = (ab_gradients){.item = NULL};
}

/* ---- accumulation ---------------------------------------------------------------------------- */

/* With masters the sum is kept in fp32, as in apex and Megatron; otherwise (and for apex's FusedSGD without
 * materialised master gradients) the backward pass has accumulated it. Scaled gradients are summed; the scale
 * is constant within a step. */
ab_status ab_gradients_sum(const ab_gradients *g, const ab_exec *exec) {
    const ab_cell_memory *memory = g->memory;
    const ab_plan *plan = memory->plan;
    if (!sums_in_fp32(g)) return AB_OK;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->grad == AB_NONE || param->master_grad == AB_NONE) continue;
        ab_tensor *sum = &memory->tensor[param->master_grad];
        const ab_tensor *fresh = &memory->tensor[param->grad];
        AB_TRY(g->position->micro > 0 ? ab_cell_memory_add(memory, exec, sum, fresh)
                                      : ab_cell_memory_cast(memory, exec, sum, fresh));
    }
    return AB_OK;
}

static ab_status unscale(const ab_gradients *g, const ab_exec *exec, const ab_scaler *scaler, bool *found) {
    const float inverse = (float)(1.0 / ab_scaler_divisor(scaler));
    const int count = g->trained->count;
    ab_status status = g->memory->backend->unscale(exec, g->item, count, inverse, found);
    return status == AB_UNAVAILABLE ? ab_fallback_unscale(exec, g->item, count, inverse, found) : status;
}

ab_status ab_gradients_unscale_sums(const ab_gradients *g, const ab_exec *exec, const ab_scaler *scaler) {
    bool found = false;
    return g->position->micro + 1 < g->position->micro_batches ? unscale(g, exec, scaler, &found) : AB_OK;
}

/* ---- waiting for the update ------------------------------------------------------------------- */

static void move_made(ab_gradients *g, int i) {
    ab_tensor *made = g->made[i];
    if (g->keeps_made) {
        g->place[i] = made->data;
        made->data = g->item[i].from->data;
    } else {
        made->data = g->place[i];
    }
}

void ab_gradients_begin(ab_gradients *g, bool keep_made) {
    const bool moves = g->keeps_made != keep_made;
    g->keeps_made = keep_made;
    for (int i = 0; i < g->trained->count; i++) {
        g->waiting[i] = 0;
        if (moves && g->made[i]) move_made(g, i);
    }
}

bool ab_gradients_can_wait(const ab_gradients *g, const ab_scaler *scaler) {
    const bool alone = !ab_scaler_checks(scaler) && ab_scaler_divisor(scaler) == 1.0 && !g->masters;
    return !alone && (float)(1.0 / ab_scaler_divisor(scaler)) != 0;
}

/* The gradient as the backward pass left it. */
static ab_tensor *left(const ab_gradients *g, int i) {
    return g->keeps_made && g->made[i] ? g->made[i] : g->item[i].from;
}

/* Widens and unscales from the last value to the first, so that nothing is overwritten before it is read. */
static ab_status unscale_in_place(const ab_gradients *g, int i) {
    enum { BLOCK = 1024 };
    float values[BLOCK], *to = g->item[i].to->data;
    ab_tensor block = *g->made[i];
    for (int64_t end = ab_tensor_count(g->made[i]), n; end > 0; end -= n) {
        n = end < BLOCK ? end : BLOCK;
        block.shape = (ab_shape){.ndim = 1, .dim = {n}};
        block.data = (char *)g->made[i]->data + ab_format_bytes(block.format, end - n);
        AB_TRY(ab_tensor_read(&block, values));
        for (int64_t k = 0; k < n; k++) to[end - n + k] = values[k] * g->waiting[i];
    }
    return AB_OK;
}

static ab_status settle(const ab_gradients *g, int i) {
    const ab_exec unobserved = {.observer = NULL};
    bool found;
    if (left(g, i) == g->item[i].from)
        return g->memory->backend->unscale(&unobserved, &g->item[i], 1, g->waiting[i], &found);
    return unscale_in_place(g, i);
}

ab_status ab_gradients_settle(const ab_gradients *g) {
    for (int i = 0; i < g->trained->count; i++) {
        if (g->waiting[i] == 0) continue;
        AB_TRY(settle(g, i));
        g->waiting[i] = 0;
    }
    return AB_OK;
}

const ab_tensor *ab_gradients_left(const ab_gradients *g, int i, float *factor) {
    *factor = g->waiting[i] == 0 ? 1.0f : g->waiting[i];
    return g->waiting[i] == 0 ? g->item[i].to : left(g, i);
}

/* A gradient that is stored in fp32 has the same bits whoever multiplies it; others are rounded here. */
static ab_status check_and_leave(const ab_gradients *g, const ab_exec *exec, float inverse, bool *found) {
    for (int i = 0; i < g->trained->count; i++) {
        if (g->item[i].to->format != &ab_format_fp32) {
            AB_TRY(g->memory->backend->unscale(exec, &g->item[i], 1, inverse, found));
            continue;
        }
        *found = *found || !ab_extremes_finite(left(g, i));
        g->waiting[i] = inverse;
    }
    return AB_OK;
}

/* ---- unscaling ------------------------------------------------------------------------------- */

/* Ids change with the watch. */
static void number_items(ab_gradients *g) {
    for (int p = 0; p < g->memory->plan->params; p++)
        if (g->trained->place[p] >= 0) g->item[g->trained->place[p]].id = g->observation->ids[p].unscaled;
}

/* A device reduces all of them at once. */
static bool gradients_finite_there(const ab_gradients *g) {
    enum { AT_ONCE = 32 };
    const ab_tensor *grad[AT_ONCE];
    ab_tensor_extremes found[AT_ONCE];
    for (int first = 0; first < g->trained->count; first += AT_ONCE) {
        int n = 0;
        for (; n < AT_ONCE && first + n < g->trained->count; n++) grad[n] = g->item[first + n].from;
        ab_extremes_of_all(grad, n, found);
        for (int i = 0; i < n; i++)
            if (found[i].infinite > 0 || found[i].nan > 0) return false;
    }
    return true;
}

/* Large gradients by the front of their rows: a non-finite gradient of an output of a product makes the row
 * of its weight non-finite. Not seen: what is born between an embedding and the first product after it. */
static bool gradients_finite(const ab_gradients *g) {
    enum { SMALL = 4096, FRONT = 16 };
    for (int i = 0; i < g->trained->count; i++) {
        const ab_tensor *grad = g->item[i].from;
        if (!(ab_tensor_count(grad) <= SMALL ? ab_extremes_finite(grad)
                                             : ab_extremes_rows_finite(grad, FRONT)))
            return false;
    }
    return true;
}

/* Unscales each gradient by the product of its layer scales. */
static ab_status unscale_layers(const ab_gradients *g, const ab_exec *exec, const ab_layer_scales *layers,
                                bool *found) {
    for (int p = 0; p < g->memory->plan->params; p++) {
        const int i = g->trained->place[p];
        const float inverse = i < 0 ? 0 : (float)(1.0 / ab_layer_scales_of_param(layers, p));
        if (i >= 0) AB_TRY(g->memory->backend->unscale(exec, &g->item[i], 1, inverse, found));
    }
    return AB_OK;
}

static ab_status skip_unscaling(const ab_gradients *g, bool *found) {
    const ab_backend *backend = g->memory->backend;
    if (g->observation->watch.wants_replay && (backend->host_memory || backend->reductions))
        *found = backend->host_memory ? !gradients_finite(g) : !gradients_finite_there(g);
    for (int i = 0; i < g->trained->count; i++)
        AB_TRY(ab_observe_tensor(g->observation, g->item[i].from, g->item[i].id));
    return AB_OK;
}

/* apex does not unscale if the scale is a fixed 1 and there are no masters to copy to. */
ab_status ab_gradients_unscale(ab_gradients *g, const ab_exec *exec, const ab_scaler *scaler,
                               const ab_layer_scales *layers, bool leave, bool *nonfinite, bool *overflow) {
    const bool alone = !ab_scaler_checks(scaler) && ab_scaler_divisor(scaler) == 1.0 && !g->masters;
    const float inverse = (float)(1.0 / ab_scaler_divisor(scaler));
    bool found = false;
    number_items(g);
    if (alone)
        AB_TRY(skip_unscaling(g, &found));
    else if (leave && ab_gradients_can_wait(g, scaler))
        AB_TRY(check_and_leave(g, exec, inverse, &found));
    else
        AB_TRY(layers ? unscale_layers(g, exec, layers, &found) : unscale(g, exec, scaler, &found));
    *nonfinite = found;
    *overflow = found && ab_scaler_checks(scaler);
    return AB_OK;
}

/* apex (_process_optimizer.py): the first gradients are scaled in place, later ones are added (axpby); only
 * the added gradients are checked then. With a fixed scale of 1 without masters autograd accumulates. The
 * last pass shows the sums. */
ab_status ab_gradients_unscale_loss(ab_gradients *g, const ab_exec *exec, const ab_scaler *scaler,
                                    bool *overflow) {
    const ab_step_position *at = g->position;
    const bool first = at->micro == 0 && at->loss_id == 0;
    const bool last = at->micro + 1 == at->micro_batches && at->loss_id + 1 == g->memory->plan->scalers;
    bool found = false;
    number_items(g);
    for (int i = 0; i < g->trained->count; i++) {
        g->item[i].adds = !first;
        if (!last) g->item[i].id = -1;
    }
    AB_TRY(unscale(g, exec, scaler, &found));
    *overflow = found && ab_scaler_checks(scaler);
    return AB_OK;
}

ab_status ab_gradients_rescale(const ab_gradients *g, const ab_exec *unobserved, double factor) {
    bool found;
    for (int i = 0; i < g->trained->count; i++) {
        ab_unscale_item item = g->item[i];
        item.from = item.to;
        AB_TRY(g->memory->backend->unscale(unobserved, &item, 1, (float)factor, &found));
    }
    return AB_OK;
}

/* ---- clipping and measuring ------------------------------------------------------------------ */

ab_status ab_gradients_clip(const ab_gradients *g, const ab_clip_config *clip, bool scaled, double *norm) {
    *norm = 0;
    if (clip->norm <= 0 && clip->value <= 0) return AB_OK;
    for (int i = 0; i < g->trained->count; i++) /* `from` is the cell's own tensor; const only in its item */
        g->clipped[i] = scaled ? (ab_tensor *)(uintptr_t)g->item[i].from : g->item[i].to;
    return ab_clip(clip, g->clipped, g->trained->count, norm);
}

static void measure_values(const float *values, int64_t n, double edge, ab_scaler_seen *seen) {
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)values[i]);
        if (!(size <= seen->amax)) seen->amax = size; /* NaN is reported by `overflow` */
        if (size <= edge)
            seen->lower++;
        else
            seen->upper++;
    }
}

ab_status ab_gradients_measure(const ab_gradients *g, const ab_scaler *scaler, ab_scaler_seen *seen) {
    const int key = ab_scaler_key_index(scaler->kind, "edge");
    const double edge =
        key < 0 ? 0 : scaler->config.value[key] * ab_format_max(&ab_format_fp16) / scaler->scale;
    float *values = ab_params_room(g->memory->plan);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int i = 0; i < g->trained->count && status == AB_OK; i++) {
        status = ab_tensor_read(g->item[i].to, values);
        if (status == AB_OK) measure_values(values, ab_tensor_count(g->item[i].to), edge, seen);
    }
    free(values);
    return status;
}
