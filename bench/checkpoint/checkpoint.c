/* Opens the files of a checkpoint and finds what is what in them. */
#include "bench/checkpoint/checkpoint.h"

#include "bench/tensorfile/folder.h"
#include "bench/tensorfile/open_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ab_status no_memory(const char *path) { return ab_fail(AB_NO_MEMORY, "%s: out of memory", path); }

/* ---- the files ------------------------------------------------------------------------------- */

static ab_status open_files(ab_checkpoint *c, const ab_tensor_paths *list) {
    c->file = calloc((size_t)list->count + 1, sizeof *c->file);
    if (!c->file) return no_memory(c->path);
    for (int i = 0; i < list->count; i++) {
        AB_TRY(ab_tensorfile_open_set(list->path[i], &c->file[c->files]));
        c->files++;
    }
    return AB_OK;
}

static bool is_torch_file(const char *path) {
    unsigned char start[2] = {0};
    FILE *file = fopen(path, "rb");
    const size_t n = file ? fread(start, 1, sizeof start, file) : 0;
    if (file) fclose(file);
    return n == 2 && ab_checkpoint_matches("*.pt|*.pth|*.bin|*.ckpt", path) &&
           (memcmp(start, "PK", 2) == 0 || start[0] == 0x80);
}

bool ab_checkpoint_recognise(const char *path) {
    ab_tensor_paths list = {NULL, 0};
    if (!ab_tensor_is_folder(path)) return is_torch_file(path);
    const bool found = ab_tensor_paths_add(path, &list) == AB_OK && list.count > 0;
    ab_tensor_paths_free(&list);
    return found;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static ab_checkpoint_group *group_at(ab_checkpoint *c, long g) {
    if (g < 0 || g >= AB_CHECKPOINT_GROUPS) return NULL;
    while (c->groups <= g)
        c->group[c->groups++] =
            (ab_checkpoint_group){(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN, false};
    return &c->group[g];
}

/* "...param_groups.0.lr": a hyper-parameter, or the number of a parameter in the group. */
static void see_group(ab_checkpoint *c, const char *key, double number) {
    char *rest;
    ab_checkpoint_group *group = group_at(c, strtol(key, &rest, 10));
    if (!group || rest == key || *rest++ != '.') return;
    if (strcmp(rest, "lr") == 0) group->lr = number;
    if (strcmp(rest, "eps") == 0) group->eps = number;
    if (strcmp(rest, "betas.0") == 0) group->beta1 = number;
    if (strcmp(rest, "betas.1") == 0) group->beta2 = number;
    if (strcmp(rest, "weight_decay") == 0) group->weight_decay = number;
    if (strcmp(rest, "decoupled_weight_decay") == 0) group->decoupled = number != 0;
    if (strncmp(rest, "params.", 7) != 0) return;
    for (int i = 0; i < c->moment_count; i++)
        if ((double)c->moments[i].id == number) c->moments[i].group = (int)(group - c->group);
}

static void take(double *into, const char *patterns, const char *name, double number) {
    if (patterns && isnan(*into) && ab_checkpoint_matches(patterns, name)) *into = number;
}

static void see_number(ab_checkpoint *c, const char *name, double number) {
    static const char groups[] = "param_groups.";
    const char *group = strstr(name, groups);
    if (group) see_group(c, group + strlen(groups), number);
    if (group) return;
    take(&c->scale, c->layout->scale, name, number);
    take(&c->tracker, c->layout->tracker, name, number);
    take(&c->skipped, c->layout->skipped, name, number);
    take(&c->steps, c->layout->steps, name, number);
}

static ab_status see_value(void *context, const char *name, const ab_tensor_value *value) {
    if (value->kind == AB_VALUE_NUMBER) see_number(context, name, value->number);
    return AB_OK;
}

/* Numbers that are tensors of one element. */
static ab_status see_scalars(ab_checkpoint *c, const ab_tensorfile *file) {
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *e = &file->tensor[i];
        float number;
        if (e->count != 1 || !e->element->format || strstr(e->name, "state.")) continue;
        AB_TRY(ab_tensorfile_read(file, e, &number));
        see_number(c, e->name, (double)number);
    }
    return AB_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static const char second_moment[] = ".exp_avg_sq";

/* ".../12.exp_avg_sq" of the optimizer: its number, 12; -1 if that is no number. */
static int64_t id_of(const char *name, size_t stem) {
    size_t begin = stem;
    while (begin > 0 && name[begin - 1] != '.') begin--;
    char *end;
    const long long id = strtoll(name + begin, &end, 10);
    return end == name + stem && end > name + begin ? id : -1;
}

/* "...12.exp_avg_sq", or "...state.exp_avg_sq.NAME" as Megatron's dist_checkpointing writes it. */
static bool is_second(const char *name) {
    return ends_with(name, second_moment) || strstr(name, ".state.exp_avg_sq.") != NULL;
}

/* Whether `name` is `second` with that key. */
static bool is_beside(const char *name, const char *second, size_t stem, const char *key) {
    return strncmp(name, second, stem) == 0 && strncmp(name + stem, key, strlen(key)) == 0 &&
           strcmp(name + stem + strlen(key), second + stem + strlen(second_moment)) == 0;
}

static ab_status see_moments(ab_checkpoint *c, const ab_tensorfile *file, const ab_tensor_entry *second) {
    const size_t stem = (size_t)(strstr(second->name, second_moment) - second->name);
    const ab_tensor_entry *first = NULL;
    float step = NAN;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *e = &file->tensor[i];
        if (!e->element->format) continue;
        if (is_beside(e->name, second->name, stem, ".exp_avg") && e->count == second->count) first = e;
        if (is_beside(e->name, second->name, stem, ".step") && e->count == 1)
            AB_TRY(ab_tensorfile_read(file, e, &step));
    }
    if (!first) return AB_OK;
    ab_checkpoint_moments *grown = realloc(c->moments, (size_t)(c->moment_count + 1) * sizeof *grown);
    if (!grown) return no_memory(c->path);
    c->moments = grown;
    c->moments[c->moment_count++] = (ab_checkpoint_moments){.first = {file, first, first->name},
                                                            .second = {file, second, second->name},
                                                            .id = id_of(second->name, stem),
                                                            .step = (double)step,
                                                            .group = -1,
                                                            .weight = -1};
    return AB_OK;
}

static ab_status see_weight(ab_checkpoint *c, const ab_tensorfile *file, const ab_tensor_entry *e) {
    static const char buffers[] =
        "*running_mean|*running_var|*inv_freq|*optim*|*exp_avg*|*rng_*|*scaler*|amp.*";
    const char *base = strrchr(file->path, '/') ? strrchr(file->path, '/') + 1 : file->path;
    const char *name = ab_checkpoint_matches(c->layout->weights, base)
                           ? ab_checkpoint_star(c->layout->model, e->name)
                           : NULL;
    if (!name || ab_checkpoint_matches(buffers, e->name) || e->count == 0) return AB_OK;
    ab_checkpoint_tensor *grown = realloc(c->weight, (size_t)(c->weights + 1) * sizeof *grown);
    if (!grown) return no_memory(c->path);
    c->weight = grown;
    c->weight[c->weights++] = (ab_checkpoint_tensor){file, e, name};
    return AB_OK;
}

static ab_status see_tensors(ab_checkpoint *c) {
    for (int f = 0; f < c->files; f++)
        for (int i = 0; i < c->file[f]->count; i++) {
            const ab_tensor_entry *e = &c->file[f]->tensor[i];
            if (!e->element->format) continue;
            if (is_second(e->name))
                AB_TRY(see_moments(c, c->file[f], e));
            else
                AB_TRY(see_weight(c, c->file[f], e));
        }
    return AB_OK;
}

/* ---- which weight moments belong to ---------------------------------------------------------- */

static bool same_shape(const ab_tensor_entry *a, const ab_tensor_entry *b) {
    if (a->ndim != b->ndim || a->count != b->count) return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

static int by_id(const void *a, const void *b) {
    const ab_checkpoint_moments *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static bool in_turn(const ab_checkpoint *c) {
    bool same = c->moment_count == c->weights;
    for (int i = 0; same && i < c->weights; i++)
        same = same_shape(c->moments[i].second.entry, c->weight[i].entry);
    return same;
}

/* The parameter that the optimizer names: "...state.NAME.exp_avg_sq" or "...state.exp_avg_sq.NAME". */
static bool is_named(const char *second, const char *weight) {
    static const char before[] = "state.", after[] = ".exp_avg_sq", first[] = ".state.exp_avg_sq.";
    const char *name = strstr(second, first);
    if (name) return strcmp(name + strlen(first), weight) == 0;
    name = strstr(second, before);
    const size_t length = strlen(weight);
    while (name) {
        name += strlen(before);
        if (strncmp(name, weight, length) == 0 && strcmp(name + length, after) == 0) return true;
        name = strstr(name, before);
    }
    return false;
}

static void pair_by_name(ab_checkpoint *c, bool *taken) {
    for (int i = 0; i < c->moment_count; i++)
        for (int w = 0; w < c->weights && c->moments[i].weight < 0; w++) {
            if (taken[w] || !is_named(c->moments[i].second.name, c->weight[w].name) ||
                c->moments[i].second.entry->count != c->weight[w].entry->count)
                continue;
            taken[w] = true;
            c->moments[i].weight = w;
            c->moments[i].pairing = AB_CHECKPOINT_BY_NAME;
        }
}

static void pair(ab_checkpoint *c, bool *taken) {
    pair_by_name(c, taken);
    if (c->moment_count > 1) qsort(c->moments, (size_t)c->moment_count, sizeof *c->moments, by_id);
    const bool ordered = in_turn(c);
    for (int i = 0; i < c->moment_count; i++)
        for (int w = ordered ? i : 0; w < c->weights && c->moments[i].weight < 0; w++) {
            if (taken[w] || !same_shape(c->moments[i].second.entry, c->weight[w].entry)) continue;
            taken[w] = true;
            c->moments[i].weight = w;
            c->moments[i].pairing = ordered ? AB_CHECKPOINT_BY_ORDER : AB_CHECKPOINT_BY_SHAPE;
        }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static ab_status find_all(ab_checkpoint *c) {
    c->layout = ab_checkpoint_layout_of(c->file, c->files);
    if (!c->layout) return ab_fail(AB_INPUT, "%s: expected a checkpoint of a known layout", c->path);
    AB_TRY(see_tensors(c));
    bool *taken = calloc((size_t)c->weights + 1, sizeof *taken);
    if (!taken) return no_memory(c->path);
    pair(c, taken);
    free(taken);
    for (int f = 0; f < c->files; f++) {
        AB_TRY(ab_tensorfile_values(c->file[f], see_value, c));
        AB_TRY(see_scalars(c, c->file[f]));
    }
    for (int i = 0; i < c->moment_count && isnan(c->steps); i++) c->steps = c->moments[i].step;
    return AB_OK;
}

ab_status ab_checkpoint_open(const char *path, ab_checkpoint *checkpoint) {
    ab_tensor_paths list = {NULL, 0};
    *checkpoint = (ab_checkpoint){.path = path,
                                  .scale = (double)NAN,
                                  .tracker = (double)NAN,
                                  .skipped = (double)NAN,
                                  .steps = (double)NAN};
    ab_status status = ab_tensor_paths_add(path, &list);
    if (status == AB_OK && list.count == 0)
        status =
            ab_fail(AB_INPUT, "%s: expected .safetensors, .pt, .pth, .bin or .ckpt files, found none", path);
    if (status == AB_OK) status = open_files(checkpoint, &list);
    ab_tensor_paths_free(&list);
    return status == AB_OK ? find_all(checkpoint) : status;
}

void ab_checkpoint_close(ab_checkpoint *checkpoint) {
    for (int i = 0; i < checkpoint->files; i++) ab_tensorfile_close(checkpoint->file[i]);
    free(checkpoint->file);
    free(checkpoint->weight);
    free(checkpoint->moments);
    *checkpoint = (ab_checkpoint){0};
}
