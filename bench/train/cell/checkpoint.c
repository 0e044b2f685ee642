/* Saves a cell's state to a file and restores it: everything that a step reads and an earlier step wrote; the
 * rest (half copies of fp32 weights, gradients, activations) is recomputed. Random numbers are a function of
 * seed and step, so their position is the number of steps. */
#include "bench/train/cell/parts.h"

#include "bench/tensorfile/safetensors.h"
#include "bench/train/init/initial_weights.h"
#include "bench/train/pass/backward.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "ampbench-checkpoint-1";

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "checkpoint: out of memory"); }

/* ---- saved tensors --------------------------------------------------------------------------- */

typedef enum part { PART_WEIGHT, PART_BUFFER, PART_MASTER, PART_STATE, PART_EMA } part;

typedef struct kept {
    char name[2 * AB_PLAN_NAME];
    ab_tensor *tensor;
    const ab_plan_param *param;
    part part;
} kept;

typedef struct kept_list {
    int count;
    kept *item;
} kept_list;

static void add(ab_cell *cell, kept_list *list, const ab_plan_param *param, part what, int tensor,
                const char *suffix) {
    if (tensor == AB_NONE) return;
    kept *item = &list->item[list->count++];
    ab_text_exact(item->name, sizeof item->name, "%s%s%s", cell->plan->tensor[param->stored].name,
                  suffix ? "." : "", suffix ? suffix : "");
    item->tensor = &cell->memory.tensor[tensor];
    item->param = param;
    item->part = what;
}

static ab_status list_kept(ab_cell *cell, kept_list *list) {
    const ab_plan *plan = cell->plan;
    const ab_optimizer *optimizer = cell->config.optimizer;
    *list = (kept_list){0, calloc((size_t)plan->params * (3 + AB_OPTIMIZER_STATES) + 1, sizeof *list->item)};
    if (!list->item) return no_memory();
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        bool trained = param->grad != AB_NONE;
        if (param->owner != AB_NONE) continue;
        add(cell, list, param, trained ? PART_WEIGHT : PART_BUFFER, param->stored, NULL);
        if (!trained) continue;
        add(cell, list, param, PART_MASTER, param->master, "master");
        for (int s = 0; s < optimizer->states; s++)
            add(cell, list, param, PART_STATE, param->state[s], optimizer->state[s]);
        add(cell, list, param, PART_EMA, param->ema, "ema");
    }
    return AB_OK;
}

/* ---- metadata -------------------------------------------------------------------------------- */

enum { NOTE_KEY = 112, NUMBER = 40 };

typedef struct note_line {
    char key[NOTE_KEY];
    char *text; /* owned */
} note_line;

typedef struct notes {
    int count, room;
    bool failed;       /* out of memory for a text */
    note_line *line;   /* [room]; owned */
    const char **list; /* argument of ab_safetensors_write: [2 * room + 1]; owned */
} notes;

/* Allocates the maximum number of entries of a cell. */
static ab_status make_notes(const ab_cell *cell, notes *n) {
    const int scalers = cell->plan->scalers + ab_cell_layers(cell);
    *n = (notes){.room = 24 + scalers * (1 + AB_SCALER_STATES)};
    n->line = calloc((size_t)n->room, sizeof *n->line);
    n->list = calloc(2 * (size_t)n->room + 1, sizeof *n->list);
    return n->line && n->list ? AB_OK : no_memory();
}

static void free_notes(notes *n) {
    for (int i = 0; i < n->count; i++) free(n->line[i].text);
    free(n->line);
    free((void *)(uintptr_t)n->list);
}

static void note_text(notes *n, const char *key, const char *text) {
    note_line *line = &n->line[n->count];
    ab_text_exact(line->key, NOTE_KEY, "%s", key);
    line->text = ab_text_new("%s", text);
    n->failed = n->failed || !line->text;
    n->list[2 * n->count] = line->key;
    n->list[2 * n->count + 1] = line->text;
    n->count++;
}

static void note_integer(notes *n, const char *key, int64_t value) {
    char text[NUMBER];
    note_text(n, key, ab_text_exact(text, NUMBER, "%" PRId64, value));
}

static void note_real(notes *n, const char *key, double value) {
    char text[NUMBER];
    note_text(n, key, ab_text_exact(text, NUMBER, "%a", value)); /* exact */
}

enum { PROPERTIES = 200 };

/* The level's properties after overrides. */
static const char *properties_text(const ab_policy *policy, char text[PROPERTIES]) {
    const char *cast = ab_policy_cast_text(policy);
    ab_text_exact(
        text, PROPERTIES,
        "cast_model_type=%s,patch_torch_functions=%d,keep_batchnorm_fp32=%s,master_weights=%s,enabled=%d",
        cast ? cast : "None", policy->patch_torch_functions, ab_tristate_text(policy->keep_batchnorm_fp32),
        ab_tristate_text(policy->master_weights), policy->enabled);
    return text;
}

/* Adds the properties that must match when resuming. */
static void note_identity(const ab_cell *cell, notes *n) {
    const ab_cell_config *config = &cell->config;
    char scale[AB_SCALER_TEXT], properties[PROPERTIES];
    note_text(n, "network", cell->plan->net->name);
    note_text(n, "network_digest", cell->plan->net->digest);
    note_text(n, "level", config->policy.level);
    note_text(n, "half", config->policy.half->name);
    note_text(n, "loss_scale", ab_loss_scale_text(&config->policy.loss_scale, scale));
    note_text(n, "optimizer", config->optimizer->name);
    note_text(n, "schedule", config->recipe.schedule ? config->recipe.schedule->name : "constant");
    note_integer(n, "batch", config->batch);
    note_integer(n, "micro_batches", cell->position.micro_batches);
    if (cell->position.ranks > 1) note_integer(n, "ranks", cell->position.ranks);
    note_integer(n, "seed", (int64_t)config->seed);
    note_text(n, "order", config->shuffled ? "shuffled" : "sequential");
    note_text(n, "scaler", cell->scalers.scaler[0].kind->name);
    note_text(n, "properties", properties_text(&config->policy, properties));
    note_text(n, "layers", config->policy.layers ? config->policy.layers : "");
    if (config->data) note_integer(n, "data_count", config->data->split[AB_SPLIT_TRAIN].count);
}

/* Number of scalers: loss scalers and per-layer scalers. */
static int scaler_count(const ab_cell *cell) { return cell->plan->scalers + ab_cell_layers(cell); }

static const ab_scaler *scaler_at(const ab_cell *cell, int k) {
    const int losses = cell->plan->scalers;
    return k < losses ? &cell->scalers.scaler[k] : ab_layer_scales_scaler(cell->layers, k - losses);
}

/* "scaler.scale", "scaler.unskipped": the dialect's names; "loss_scaler1.scale" where losses have their own
 * (apex's key); "layer_scaler.fc1.scale" of layers. */
static const char *scaler_key(const ab_cell *cell, int k, int i, char key[NOTE_KEY]) {
    const char *name = ab_scaler_state_name(scaler_at(cell, k)->kind, i);
    if (k >= cell->plan->scalers)
        ab_text_exact(key, NOTE_KEY, "layer_scaler.%s.%s", ab_cell_layer_name(cell, k - cell->plan->scalers),
                      name);
    else if (ab_backward_by_loss(cell->plan))
        ab_text_exact(key, NOTE_KEY, "loss_scaler%d.%s", k, name);
    else
        ab_text_exact(key, NOTE_KEY, "scaler.%s", name);
    return key;
}

static void note_position(const ab_cell *cell, notes *n) {
    note_integer(n, "steps", cell->position.steps);
    note_integer(n, "taken", cell->position.taken);
    note_integer(n, "schedule_advanced", cell->position.advanced);
    for (int k = 0; k < scaler_count(cell); k++) {
        const ab_scaler *scaler = scaler_at(cell, k);
        for (int i = 0; i < ab_scaler_state_count(scaler->kind); i++) {
            char key[NOTE_KEY];
            note_real(n, scaler_key(cell, k, i, key), ab_scaler_state(scaler, i));
        }
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static ab_status read_items(const kept_list *list, ab_safetensor_item *items) {
    for (int i = 0; i < list->count; i++) {
        float *values = malloc((size_t)ab_tensor_count(list->item[i].tensor) * sizeof *values);
        items[i] = (ab_safetensor_item){
            .name = list->item[i].name, .shape = list->item[i].tensor->shape, .data = values};
        if (!values) return no_memory();
        AB_TRY(ab_tensor_read(list->item[i].tensor, values));
    }
    return AB_OK;
}

ab_status ab_cell_checkpoint(const ab_cell *cell, const char *path) {
    ab_status status = AB_OK;
    kept_list list = {0, NULL};
    ab_safetensor_item *items = NULL;
    notes n = {0};
    AB_TRY_GOTO(make_notes(cell, &n));
    /* list_kept does not modify the cell; the list is non-const for resuming */
    AB_TRY_GOTO(list_kept((ab_cell *)(uintptr_t)cell, &list));
    items = calloc((size_t)list.count + 1, sizeof *items);
    if (!items) {
        status = no_memory();
        goto out;
    }
    note_text(&n, "format", format_name);
    note_identity(cell, &n);
    if (ab_backward_by_loss(cell->plan)) note_integer(&n, "num_losses", cell->plan->scalers);
    note_position(cell, &n);
    if (n.failed) AB_TRY_GOTO(no_memory());
    AB_TRY_GOTO(read_items(&list, items));
    AB_TRY_GOTO(ab_safetensors_write(path, items, list.count, n.list));
out:
    for (int i = 0; items && i < list.count; i++) free((void *)(uintptr_t)items[i].data);
    free(items);
    free(list.item);
    free_notes(&n);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void compare(const kept *item, const ab_tensorfile *file, ab_differences *found) {
    ab_differ_from(found, file, item->name, &item->tensor->shape, NULL);
}

static void compare_back(const kept_list *list, const ab_tensorfile *file, ab_differences *found) {
    for (int i = 0; i < file->count; i++) {
        int k = 0;
        while (k < list->count && strcmp(list->item[k].name, file->tensor[i].name) != 0) k++;
        if (k == list->count) ab_differ(found, file->tensor[i].name, "is unknown here");
    }
}

/* Detects a different network by its weights and buffers. */
static ab_status check_weights(const kept_list *list, const ab_tensorfile *file, const char *net) {
    ab_differences found = {0, ""};
    for (int i = 0; i < list->count; i++)
        if (list->item[i].part <= PART_BUFFER) compare(&list->item[i], file, &found);
    if (found.count > 0) compare_back(list, file, &found);
    return ab_differences_status(&found, net);
}

static ab_status check_all(const kept_list *list, const ab_tensorfile *file, const char *net) {
    ab_differences found = {0, ""};
    for (int i = 0; i < list->count; i++) compare(&list->item[i], file, &found);
    compare_back(list, file, &found);
    return ab_differences_status(&found, net);
}

/* The file's text under `key`; *text is owned by the caller. */
static ab_status text_of(const ab_tensorfile *file, const char *key, char **text) {
    AB_TRY(ab_safetensors_metadata(file, key, text));
    if (*text) return AB_OK;
    return ab_fail(AB_INPUT, "expected a checkpoint of this program, found no '%s' in it", key);
}

static ab_status check_format(const ab_tensorfile *file) {
    char *found = NULL;
    AB_TRY(text_of(file, "format", &found));
    ab_status status = AB_OK;
    if (strcmp(found, format_name) != 0)
        status = ab_fail(AB_INPUT, "expected a checkpoint (%s), found '%s'; weights alone are read by --init",
                         format_name, ab_text_brief(found, 40));
    free(found);
    return status;
}

/* Written only where losses have their own scalers. */
static ab_status check_scalers(const ab_cell *cell, const ab_tensorfile *file) {
    char *there = NULL, here[16];
    AB_TRY(ab_safetensors_metadata(file, "num_losses", &there));
    ab_text_exact(here, sizeof here, "%d", cell->plan->scalers);
    ab_status status = AB_OK;
    if (strcmp(there ? there : "1", here) != 0)
        status = ab_fail(AB_INPUT, "num_losses is %s there and %s here",
                         ab_text_brief(there ? there : "1", 16), here);
    free(there);
    return status;
}

/* Long texts are shown from shortly before the first difference. */
static ab_status differing(const char *key, const char *there, const char *here) {
    enum { KEPT = 16 };
    size_t same = 0;
    while (there[same] && there[same] == here[same]) same++;
    const size_t skip = same > 2 * KEPT ? same - KEPT : 0;
    const char *gap = skip ? "..." : "";
    return ab_fail(AB_INPUT, "%s is %s%s there and %s%s here", key, gap, ab_text_brief(there + skip, 60), gap,
                   ab_text_brief(here + skip, 60));
}

static ab_status check_identity(const ab_cell *cell, const ab_tensorfile *file) {
    notes here = {0};
    ab_status status = make_notes(cell, &here);
    if (status == AB_OK) status = check_scalers(cell, file);
    if (status == AB_OK) note_identity(cell, &here);
    if (here.failed) status = no_memory();
    for (int i = 0; i < here.count && status == AB_OK; i++) {
        char *there = NULL;
        const note_line *line = &here.line[i];
        status = text_of(file, line->key, &there);
        if (status == AB_OK && strcmp(there, line->text) != 0)
            status = differing(line->key, there, line->text);
        free(there);
    }
    free_notes(&here);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static ab_status integer_of(const ab_tensorfile *file, const char *key, int64_t *value) {
    char *text = NULL, *end;
    AB_TRY(text_of(file, key, &text));
    *value = strtoll(text, &end, 10);
    ab_status status = AB_OK;
    if (end == text || *end != '\0' || *value < 0)
        status = ab_fail(AB_INPUT, "%s: expected a count, found '%s'", key, ab_text_brief(text, 40));
    free(text);
    return status;
}

static ab_status real_of(const ab_tensorfile *file, const char *key, double *value) {
    char *text = NULL, *end;
    AB_TRY(text_of(file, key, &text));
    *value = strtod(text, &end);
    ab_status status = AB_OK;
    if (end == text || *end != '\0')
        status = ab_fail(AB_INPUT, "%s: expected a number, found '%s'", key, ab_text_brief(text, 40));
    free(text);
    return status;
}

static ab_status read_scaler(ab_cell *cell, int k, const ab_tensorfile *file) {
    const int losses = cell->plan->scalers;
    ab_scaler *scaler =
        k < losses ? &cell->scalers.scaler[k] : ab_layer_scales_scaler(cell->layers, k - losses);
    for (int i = 0; i < ab_scaler_state_count(scaler->kind); i++) {
        char key[NOTE_KEY];
        double value;
        AB_TRY(real_of(file, scaler_key(cell, k, i, key), &value));
        AB_TRY(ab_scaler_set_state(scaler, ab_scaler_state_name(scaler->kind, i), value));
    }
    return AB_OK;
}

static ab_status read_position(ab_cell *cell, const ab_tensorfile *file) {
    const unsigned faults = cell->config.recipe.faults;
    int64_t steps, taken, advanced;
    AB_TRY(integer_of(file, "steps", &steps));
    AB_TRY(integer_of(file, "taken", &taken));
    AB_TRY(integer_of(file, "schedule_advanced", &advanced));
    if (!(faults & AB_FAULT_resume_without_position)) cell->position.steps = steps;
    if (!(faults & AB_FAULT_resume_without_optimizer)) cell->position.taken = taken;
    if (!(faults & AB_FAULT_resume_without_schedule)) cell->position.advanced = advanced;
    if (faults & AB_FAULT_resume_without_scaler) return AB_OK;
    for (int k = 0; k < scaler_count(cell); k++) AB_TRY(read_scaler(cell, k, file));
    return AB_OK;
}

static bool left_out(const kept *item, unsigned faults) {
    if (item->part == PART_STATE) return faults & AB_FAULT_resume_without_optimizer;
    if (item->part == PART_BUFFER) return faults & AB_FAULT_resume_without_batch_norm;
    return item->part == PART_MASTER && faults & AB_FAULT_resume_without_masters;
}

static ab_status read_tensor(ab_cell *cell, const kept *item, const ab_tensorfile *file) {
    const unsigned faults = cell->config.recipe.faults;
    float *values = malloc((size_t)ab_tensor_count(item->tensor) * sizeof *values);
    if (!values) return no_memory();
    ab_status status = AB_OK;
    if (!left_out(item, faults)) {
        status = ab_tensorfile_read_as(file, item->name, &item->tensor->shape, values);
        if (status == AB_OK) status = ab_tensor_write(item->tensor, values);
    } else if (item->part == PART_MASTER) { /* listed after its weight */
        status = ab_tensor_read(&cell->memory.tensor[item->param->stored], values);
        if (status == AB_OK) status = ab_tensor_write(item->tensor, values);
    }
    free(values);
    return status;
}

/* ---- audit of the restored state ------------------------------------------------------------- */

/* Compares the actual bits in the cell with the file. */
static ab_status audit_tensor(const kept *item, const ab_tensorfile *file, ab_always_on_resume *found) {
    const size_t bytes = (size_t)ab_tensor_count(item->tensor) * sizeof(float);
    float *saved = malloc(bytes), *used = malloc(bytes);
    ab_status status = saved && used ? AB_OK : no_memory();
    if (status == AB_OK) status = ab_tensorfile_read_as(file, item->name, &item->tensor->shape, saved);
    if (status == AB_OK) status = ab_tensor_read(item->tensor, used);
    if (status == AB_OK && memcmp(saved, used, bytes) != 0 && found->tensors_differing++ == 0)
        ab_text_show(found->tensor, sizeof found->tensor, "%s", item->name);
    found->tensors++;
    free(saved);
    free(used);
    return status;
}

/* Compares what the cell would write now with the file. */
static ab_status audit_position(const ab_cell *cell, const ab_tensorfile *file, ab_always_on_resume *found) {
    notes here = {0};
    ab_status status = make_notes(cell, &here);
    if (status == AB_OK) note_position(cell, &here);
    if (here.failed) status = no_memory();
    for (int i = 0; i < here.count && status == AB_OK; i++) {
        const note_line *line = &here.line[i];
        double saved;
        AB_TRY_GOTO(real_of(file, line->key, &saved));
        const double used = strtod(line->text, NULL);
        found->states++;
        if (saved == used) continue;
        if (found->states_differing < AB_ALWAYS_ON_STATES) {
            ab_always_on_state *state = &found->state[found->states_differing];
            ab_text_show(state->name, sizeof state->name, "%.*s", AB_ALWAYS_ON_NAME - 1, line->key);
            state->saved = saved, state->used = used;
        }
        found->states_differing++;
    }
out:
    free_notes(&here);
    return status;
}

static ab_status audit(ab_cell *cell, const kept_list *list, const ab_tensorfile *file) {
    ab_always_on_resume *found = &cell->always_on.resume;
    *found = (ab_always_on_resume){.resumed = true};
    for (int i = 0; i < list->count; i++) AB_TRY(audit_tensor(&list->item[i], file, found));
    return audit_position(cell, file, found);
}

static ab_status resume(ab_cell *cell, const ab_tensorfile *file) {
    ab_status status = AB_OK;
    kept_list list = {0, NULL};
    AB_TRY_GOTO(list_kept(cell, &list));
    AB_TRY_GOTO(check_format(file));
    AB_TRY_GOTO(check_weights(&list, file, cell->plan->net->name));
    AB_TRY_GOTO(check_identity(cell, file));
    AB_TRY_GOTO(check_all(&list, file, cell->plan->net->name));
    for (int i = 0; i < list.count; i++) AB_TRY_GOTO(read_tensor(cell, &list.item[i], file));
    AB_TRY_GOTO(read_position(cell, file));
    AB_TRY_GOTO(audit(cell, &list, file));
    ab_walk_weights_changed(&cell->walk);
out:
    free(list.item);
    return status;
}

ab_status ab_cell_resume(ab_cell *cell, const char *path) {
    ab_tensorfile *file = NULL;
    if (ab_safetensors_open(path, &file) != AB_OK) return ab_fail_prefix(AB_INPUT, "--resume-from");
    ab_status status = resume(cell, file);
    ab_tensorfile_close(file);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--resume-from %s", path);
}

ab_status ab_checkpoint_steps(const char *path, int64_t *steps) {
    ab_tensorfile *file = NULL;
    if (ab_safetensors_open(path, &file) != AB_OK) return ab_fail_prefix(AB_INPUT, "--resume-from");
    ab_status status = check_format(file);
    if (status == AB_OK) status = integer_of(file, "steps", steps);
    ab_tensorfile_close(file);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "--resume-from %s", path);
}
