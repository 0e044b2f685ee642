/* Launches several steps, then the host reads their records and checks them against its own loss scaler. The
 * second step is captured as a graph, which is launched from then on; where the batches of several steps fit,
 * TOGETHER steps are one graph.
 *
 * Limited to what the device's tables support: one loss, apex's scaler or a fixed scale, few parameter
 * groups, no op on the host. */
#include "bench/train/cell/window.h"

#include "bench/train/cell/parts.h"
#include "bench/train/pass/backward.h"
#include "bench/train/pass/forward.h"
#include "bench/train/update/optim_device.h"
#include "kernels/core/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = AB_ALWAYS_ON_STEPS, GROUPS = 8, TOGETHER = 4, STAGED_BYTES = 16 << 20 };

/* Captured separately: the batches of a step differ in the work before and after them. */
enum { FIRST_BATCH, MIDDLE_BATCH, LAST_BATCH, BATCH_KINDS };

struct ab_step_window {
    const ab_resident_ops *ops;
    ab_resident *resident;
    ab_graph *graph[BATCH_KINDS];
    ab_graph *together[WINDOW / TOGETHER]; /* by their place in a window, which their marks name */
    ab_stage *stage;
    int slots, slot; /* of the stage; next one of a single batch */
    ab_update_kind kind;
    bool warm;                  /* a step has run; graphs are captured only afterwards */
    int *group;                 /* [trained_count]: group of equal learning rate and weight decay */
    ab_tensor **ema;            /* [trained_count]: averages, or NULL */
    int member[GROUPS], groups; /* one parameter per group */
    ab_update_row row[WINDOW * GROUPS];
    ab_step_record record[WINDOW];
    int64_t time_ns[WINDOW];
};

/* ---- eligibility ----------------------------------------------------------------------------- */

/* Assigns group numbers by learning rate and weight decay (groups.h). False: too many groups. */
static bool find_groups(const ab_weight_update *update, int *group, int *member, int *groups) {
    *groups = 0;
    for (int i = 0, g; i < update->trained->count; i++) {
        const ab_optimizer_config *own = &update->own[i];
        for (g = 0; g < *groups; g++) {
            const ab_optimizer_config *other = &update->own[member[g]];
            if (own->lr == other->lr && own->weight_decay == other->weight_decay) break;
        }
        if (g == GROUPS) return false;
        if (g == *groups) member[(*groups)++] = i;
        if (group) group[i] = g;
    }
    return *groups > 0;
}

static bool few_groups(const ab_weight_update *update) {
    int member[GROUPS], groups;
    return find_groups(update, NULL, member, &groups);
}

static bool plain_recipe(const ab_recipe *recipe) { return recipe->faults == 0 && !recipe->schedule_on_skip; }

/* Scalers whose first state counts clean steps, like ab_step_state.unskipped. */
static bool known_scaler(const ab_scaler_kind *kind) {
    return strcmp(kind->name, "fixed") == 0 || strcmp(kind->name, "apex") == 0;
}

/* The reason why the host must decide; NULL if the device can. */
static const char *host_only_reason(const ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const ab_backend *backend = cell->memory.backend;
    if (backend->host_memory) return "the CPU needs no windows";
    if (cell->config.no_graph) return "--no-graph";
    if (cell->config.recipe.ranks.count > 1) return "gradients of ranks are reduced on the host";
    if (!backend->resident) return "the device cannot";
    if (cell->walk.fallbacks > 0) return "an op runs on the host";
    if (ab_optimizer_device_kind(cell->config.optimizer) == AB_UPDATE_NONE)
        return "the device has no such optimizer";
    if (cell->config.optim.by_op) return "the optimizer rounds after every operation";
    if (cell->config.recipe.clip.format) return "the norm of gradients has a format of its own";
    if (!few_groups(&cell->update)) return "parameters have too many different rates";
    if (!plain_recipe(&cell->config.recipe)) return "of a fault";
    if (!known_scaler(cell->scalers.scaler[0].kind)) return "the device has no such loss scaler";
    if (ab_backward_by_loss(plan)) return "losses have their own scales";
    if (plan->losses != 1 || plan->net->loss[0].weight != 1.0) return "the loss is a sum";
    return NULL;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static double key_of(const ab_scaler *scaler, const char *name) {
    int i = ab_scaler_key_index(scaler->kind, name);
    return i >= 0 ? scaler->config.value[i] : 0;
}

static ab_scale_rule rule_of(const ab_scaler *scaler) {
    return (ab_scale_rule){.dynamic = ab_scaler_checks(scaler),
                           .min_scale = key_of(scaler, "min"),
                           .max_scale = key_of(scaler, "max"),
                           .window = (int64_t)key_of(scaler, "window")};
}

/* Two slots; or those of two graphs of TOGETHER steps, the next one filled while the other runs. Launching
 * costs microseconds: only short steps gain from fewer launches. */
static int slots_for(const ab_cell *cell, const size_t bytes[2]) {
    static const double short_step = 1e11; /* FLOPs */
    const int64_t most = 2 * TOGETHER * cell->position.micro_batches;
    const bool fit = most <= AB_STAGE_SLOTS && most * (int64_t)(bytes[0] + bytes[1]) <= STAGED_BYTES;
    return fit && cell->plan->flops * (double)cell->position.micro_batches <= short_step ? (int)most : 2;
}

static bool are_together(const struct ab_step_window *w) { return w->slots > 2; }

static ab_status make_stage(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const int tensor[2] = {plan->input, plan->targets};
    struct ab_step_window *w = cell->window;
    size_t bytes[2];
    void *room[AB_STAGE_SLOTS][2];
    for (int i = 0; i < 2; i++) bytes[i] = (size_t)plan->tensor[tensor[i]].bytes;
    w->slots = slots_for(cell, bytes);
    for (int i = 0; i < 2; i++) {
        const int64_t each = ab_mem_rounded((int64_t)bytes[i]);
        void *rooms;
        AB_TRY(ab_mem_alloc(cell->memory.mem, AB_MEM_input, w->slots * each, &rooms));
        for (int slot = 0; slot < w->slots; slot++) room[slot][i] = (char *)rooms + slot * each;
    }
    return w->ops->stage_create(bytes, (void *const(*)[2])room, w->slots, &w->stage);
}

/* Groups of the trained parameters, and their averages. */
static ab_status list_items(ab_cell *cell) {
    struct ab_step_window *w = cell->window;
    const ab_plan *plan = cell->plan;
    w->group = calloc((size_t)cell->trained.count + 1, sizeof *w->group);
    w->ema = calloc((size_t)cell->trained.count + 1, sizeof *w->ema);
    if (!w->group || !w->ema) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    find_groups(&cell->update, w->group, w->member, &w->groups);
    for (int p = 0; p < plan->params; p++) {
        int i = cell->trained.place[p];
        if (i >= 0 && plan->param[p].ema != AB_NONE) w->ema[i] = &cell->memory.tensor[plan->param[p].ema];
    }
    return AB_OK;
}

static ab_status make_resident(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const ab_scaler *scaler = &cell->scalers.scaler[0];
    const ab_recipe *recipe = &cell->config.recipe;
    struct ab_step_window *w = cell->window;
    AB_TRY(list_items(cell));
    ab_resident_config config = {.loss = &cell->memory.tensor[plan->loss[0]],
                                 .loss_grad = &cell->memory.tensor[plan->loss_grad[0]],
                                 .unscale = cell->gradients.item,
                                 .update = cell->update.item,
                                 .ema = recipe->ema_decay > 0 ? w->ema : NULL,
                                 .group = w->group,
                                 .items = cell->trained.count,
                                 .groups = w->groups,
                                 .batches = (int)cell->position.micro_batches,
                                 .leave_gradients = !ab_scaler_checks(scaler) && scaler->scale == 1.0 &&
                                                    !cell->gradients.masters,
                                 .update_kind = (int)w->kind,
                                 .clip_norm = recipe->clip.norm,
                                 .clip_value = recipe->clip.value,
                                 .ema_decay = recipe->ema_decay,
                                 .rule = rule_of(scaler),
                                 .window = WINDOW};
    return w->ops->create(&config, &w->resident);
}

ab_status ab_step_window_start(ab_cell *cell) {
    const char *why = host_only_reason(cell);
    if (why) {
        if (!cell->memory.backend->host_memory) ab_debug("every step waits for the device: %s", why);
        return AB_OK;
    }
    cell->window = calloc(1, sizeof *cell->window);
    if (!cell->window) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    cell->window->ops = cell->memory.backend->resident;
    cell->window->kind = ab_optimizer_device_kind(cell->config.optimizer);
    AB_TRY(make_stage(cell));
    ab_status status = make_resident(cell);
    if (status != AB_UNAVAILABLE) return status;
    ab_step_window_stop(cell);
    return AB_OK;
}

void ab_step_window_stop(ab_cell *cell) {
    struct ab_step_window *w = cell->window;
    if (!w) return;
    for (int i = 0; i < BATCH_KINDS; i++) w->ops->graph_destroy(w->graph[i]);
    for (int i = 0; i < WINDOW / TOGETHER; i++) w->ops->graph_destroy(w->together[i]);
    w->ops->destroy(w->resident);
    w->ops->stage_destroy(w->stage);
    free(w->group);
    free(w->ema);
    free(w);
    cell->window = NULL;
}

int ab_cell_window(const ab_cell *cell) { return cell->window ? WINDOW : 1; }

/* ---- steps ----------------------------------------------------------------------------------- */

/* Uploads batch `number` of the run, which belongs to step `step`, to a slot. */
static ab_status send_batch(ab_cell *cell, int slot, int64_t number, int64_t step) {
    const struct ab_step_window *w = cell->window;
    void *buffer[2];
    AB_TRY(w->ops->stage_buffers(w->stage, slot, buffer));
    ab_batches_choose(&cell->batches, number);
    ab_batches_write(&cell->batches, AB_SPLIT_TRAIN, buffer[0], buffer[1]);
    AB_TRY(ab_batches_count(&cell->batches, step, buffer[0], buffer[1]));
    return w->ops->stage_send(w->stage, slot);
}

static ab_status use_batch(const ab_cell *cell, int slot) {
    const ab_tensor *tensor = cell->memory.tensor;
    void *const to[2] = {tensor[cell->plan->input].data, tensor[cell->plan->targets].data};
    return cell->window->ops->stage_use(cell->window->stage, slot, to);
}

static bool is_last_batch(const ab_step_position *position) {
    return position->micro + 1 == position->micro_batches;
}

/* Everything of a batch except its data, including the step's work before its first and after its last batch.
 * Half copies of the weights are always recomputed: the host does not know whether the weights changed. */
static ab_status one_batch(ab_cell *cell) {
    const struct ab_step_window *w = cell->window;
    const ab_exec exec = ab_walk_exec(&cell->walk);
    if (cell->position.micro == 0) {
        cell->walk.casts_version = 0;
        AB_TRY(w->ops->begin(w->resident));
    }
    AB_TRY(ab_forward(&cell->walk));
    AB_TRY(ab_backward(&cell->walk, &cell->position, cell->layers));
    AB_TRY(ab_gradients_sum(&cell->gradients, &exec));
    AB_TRY(w->ops->batch(w->resident));
    return is_last_batch(&cell->position) ? w->ops->finish(w->resident) : AB_OK;
}

static ab_status record(ab_cell *cell, ab_graph **graph) {
    struct ab_step_window *w = cell->window;
    AB_TRY(w->ops->record_begin());
    ab_status status = one_batch(cell), ended = w->ops->record_end(graph);
    return status == AB_OK ? ended : status;
}

/* The first step runs without capture, because libraries load their modules lazily. */
static ab_status launch(ab_cell *cell) {
    struct ab_step_window *w = cell->window;
    const bool last = is_last_batch(&cell->position);
    ab_graph **graph = &w->graph[cell->position.micro == 0 ? FIRST_BATCH : last ? LAST_BATCH : MIDDLE_BATCH];
    if (!w->warm) return one_batch(cell);
    if (!*graph) AB_TRY(record(cell, graph));
    return w->ops->launch(*graph);
}

static ab_status run_step(ab_cell *cell, int64_t step) {
    ab_step_position *at = &cell->position;
    struct ab_step_window *w = cell->window;
    for (at->micro = 0; at->micro < at->micro_batches; at->micro++) {
        AB_TRY(send_batch(cell, w->slot, step * at->micro_batches + at->micro, step));
        AB_TRY(use_batch(cell, w->slot));
        AB_TRY(w->ops->stage_done(w->stage, w->slot));
        AB_TRY(launch(cell));
        w->slot = (w->slot + 1) % w->slots;
    }
    w->warm = true;
    return AB_OK;
}

/* ---- several steps at once ------------------------------------------------------------------- */

/* First slot of the steps at this place of a window: halves of the stage in turns. */
static int first_slot(const struct ab_step_window *w, int place) {
    return place / TOGETHER % 2 * (w->slots / 2);
}

/* The work of TOGETHER steps, their marks included. */
static ab_status several_steps(ab_cell *cell, int place) {
    struct ab_step_window *w = cell->window;
    ab_step_position *at = &cell->position;
    int slot = first_slot(w, place);
    for (int i = 0; i < TOGETHER; i++) {
        for (at->micro = 0; at->micro < at->micro_batches; at->micro++) {
            AB_TRY(use_batch(cell, slot++));
            AB_TRY(one_batch(cell));
        }
        AB_TRY(w->ops->mark(w->resident, place + i + 1));
    }
    return AB_OK;
}

static ab_status record_several(ab_cell *cell, int place, ab_graph **graph) {
    struct ab_step_window *w = cell->window;
    AB_TRY(w->ops->record_begin());
    ab_status status = several_steps(cell, place), ended = w->ops->record_end(graph);
    return status == AB_OK ? ended : status;
}

static ab_status run_together(ab_cell *cell, int64_t step, int place) {
    struct ab_step_window *w = cell->window;
    const int64_t batches = cell->position.micro_batches;
    ab_graph **graph = &w->together[place / TOGETHER];
    const int first = first_slot(w, place), count = w->slots / 2;
    for (int i = 0; i < count; i++)
        AB_TRY(send_batch(cell, first + i, step * batches + i, step + i / batches));
    if (!*graph) AB_TRY(record_several(cell, place, graph));
    AB_TRY(w->ops->launch(*graph));
    for (int i = 0; i < count; i++) AB_TRY(w->ops->stage_done(w->stage, first + i));
    return AB_OK;
}

/* Runs the step at this place of a window of `count` steps, or the steps from there on that are one graph.
 * *steps: how many ran. */
static ab_status run_next(ab_cell *cell, int place, int count, int *steps) {
    struct ab_step_window *w = cell->window;
    const int64_t step = cell->position.steps + place;
    const bool together = w->warm && are_together(w) && place % TOGETHER == 0 && count - place >= TOGETHER;
    *steps = together ? TOGETHER : 1;
    if (together) return run_together(cell, step, place);
    AB_TRY(run_step(cell, step));
    return w->ops->mark(w->resident, place + 1);
}

static ab_status set_state(ab_cell *cell) {
    struct ab_step_window *w = cell->window;
    const ab_step_position *at = &cell->position;
    const ab_scaler *scaler = &cell->scalers.scaler[0];
    const ab_step_state state = {.scale = scaler->scale,
                                 .unskipped = (int64_t)scaler->state[0],
                                 .taken = at->taken,
                                 .step = at->steps,
                                 .batches = at->steps * at->micro_batches};
    for (int i = 0; i < WINDOW * w->groups; i++) {
        const int step = i / w->groups, group = i % w->groups;
        const ab_optimizer_config config =
            ab_weight_update_config(&cell->update, w->member[group], at->advanced + step);
        w->row[i] = ab_optimizer_device_row(w->kind, &config, at->taken + 1 + step);
    }
    return w->ops->set(w->resident, &state, w->row);
}

/* Updates the host's scaler for the same step; both must agree. */
static ab_status follow_scaler(const ab_step_position *at, ab_scaler *scaler, const ab_step_record *record,
                               ab_step_result *result) {
    const ab_scaler_seen seen = {.overflow = result->overflow};
    const ab_scaler_outcome outcome = ab_scaler_update(scaler, &seen);
    if (outcome.fault && outcome.fault->raises)
        return ab_fail(AB_CONFIG, "step %lld: loss scaler %s raises (%s): %s", (long long)at->steps,
                       scaler->kind->name, outcome.fault->name, outcome.fault->text);
    result->skipped = outcome.skip;
    if (record->scale != result->scale || (record->skipped != 0) != result->skipped)
        return ab_fail(AB_INTERNAL, "step %lld: the device's loss scale is %g, the host's %g",
                       (long long)at->steps, record->scale, result->scale);
    return AB_OK;
}

static ab_status follow(ab_cell *cell, const ab_step_record *record, ab_step_result *result) {
    ab_step_position *at = &cell->position;
    ab_scaler *scaler = &cell->scalers.scaler[0];
    *result = (ab_step_result){.loss = isnan(record->loss) ? NAN : record->loss,
                               .scale = scaler->scale,
                               .scales = {scaler->scale},
                               .overflows = record->overflow != 0,
                               .lr = ab_weight_update_rate(&cell->update, at->advanced).lr,
                               .grad_norm = record->grad_norm,
                               .overflow = record->overflow != 0};
    AB_TRY(follow_scaler(at, scaler, record, result));
    ab_always_on_step_end(&cell->always_on, at->steps, result->skipped);
    at->steps++;
    if (result->skipped) return AB_OK;
    at->taken++;
    at->advanced++;
    return AB_OK;
}

static ab_status run_steps(ab_cell *cell, int count, ab_step_result *result) {
    struct ab_step_window *w = cell->window;
    ab_step_state state;
    AB_TRY(set_state(cell));
    AB_TRY(w->ops->mark(w->resident, 0));
    for (int place = 0, steps; place < count; place += steps) AB_TRY(run_next(cell, place, count, &steps));
    AB_TRY(w->ops->collect(w->resident, count, w->record, w->time_ns, &state));
    for (int i = 0; i < count; i++) AB_TRY(follow(cell, &w->record[i], &result[i]));
    return AB_OK;
}

static ab_status run_window(ab_cell *cell, int count, ab_step_result *result) {
    struct ab_step_window *w = cell->window;
    cell->observation.observer = NULL;
    cell->walk.exec.training = true;
    cell->walk.exec.device_step = w->ops->counter(w->resident);
    ab_status status = run_steps(cell, count, result);
    cell->walk.exec.device_step = NULL;
    ab_walk_weights_changed(&cell->walk);
    return status;
}

ab_status ab_cell_run_steps(ab_cell *cell, int count, ab_step_result *result, int64_t *time_ns) {
    if (!cell->window) {
        for (int i = 0; i < count; i++) {
            AB_TRY(ab_cell_step(cell, NULL, &result[i]));
            time_ns[i] = 0;
        }
        return AB_OK;
    }
    for (int done = 0; done < count;) {
        int n = count - done < WINDOW ? count - done : WINDOW;
        AB_TRY(run_window(cell, n, result + done));
        memcpy(time_ns + done, cell->window->time_ns, (size_t)n * sizeof *time_ns);
        done += n;
    }
    return AB_OK;
}
