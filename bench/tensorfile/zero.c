/* Puts the partitions of ZeRO together. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/zero.h"

#include "bench/tensorfile/assembled.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME = 4200, PATH_TEXT = 4096, MOST_RANKS = 4096, MOST_GROUPS = 4096 };

typedef struct parameter {
    char *name; /* owned */
    int group, ndim;
    int64_t dim[AB_TENSORFILE_MAX_DIMS], count, padding; /* padding: elements behind it */
} parameter;

typedef struct zero {
    ab_assembled set;             /* first, as ab_assembled_release is given it */
    ab_tensorfile *model, **rank; /* borrowed from the set; [ranks] */
    int ranks;
} zero;

typedef struct builder {
    const char *path; /* borrowed */
    ab_tensorfile *file;
    zero *to;
    parameter *parameter;
    int parameters, groups;
    bool cut; /* stage 3: every parameter is cut */
} builder;

/* A piece of a vector that lies in several tensors. */
typedef struct span {
    const ab_tensorfile *file;
    const ab_tensor_entry *entry;
} span;

/* ---- files ------------------------------------------------------------------------------------ */

static const char *base_of(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* The name of the partition of a rank, with the prefix that it has; false: there is none. */
static bool partition_name(const char *path, int rank, char name[PATH_TEXT]) {
    static const char *const prefixes[] = {"", "bf16_", "fp16_"};
    static const char mark[] = "mp_rank_";
    const char *base = base_of(path), *at = strstr(base, mark), *end = strstr(base, "_model_states.pt");
    char whole[PATH_TEXT];
    struct stat about;
    if (!at || !end || end < at + strlen(mark)) return false;
    for (size_t i = 0; i < AB_COUNT_OF(prefixes); i++)
        if (ab_text_fits(name, PATH_TEXT, "%szero_pp_rank_%d_%.*s_optim_states.pt", prefixes[i], rank,
                         (int)(end - at), at) &&
            ab_text_fits(whole, sizeof whole, "%.*s%s", (int)(base - path), path, name) &&
            stat(whole, &about) == 0)
            return true;
    return false;
}

bool ab_zero_recognise(const char *path) {
    char name[PATH_TEXT];
    return partition_name(path, 0, name);
}

static ab_status open_files(builder *b, const char *path) {
    char name[PATH_TEXT];
    zero *z = b->to;
    AB_TRY(ab_assembled_open(&z->set, path, base_of(path), false, &z->model));
    z->rank = calloc(MOST_RANKS, sizeof *z->rank);
    if (!z->rank) return ab_fail(AB_NO_MEMORY, "out of memory for the partitions");
    while (z->ranks < MOST_RANKS && partition_name(path, z->ranks, name)) {
        AB_TRY(ab_assembled_open(&z->set, path, name, false, &z->rank[z->ranks]));
        z->ranks++;
    }
    return AB_OK;
}

/* ---- parameters ------------------------------------------------------------------------------- */

/* "param_shapes.GROUP.NAME" of the model states. */
static ab_status see_shape(void *context, const char *name, const ab_tensor_value *value) {
    static const char mark[] = "param_shapes.";
    builder *b = context;
    char *rest;
    if (value->kind != AB_VALUE_SHAPE || strncmp(name, mark, strlen(mark)) != 0) return AB_OK;
    const long group = strtol(name + strlen(mark), &rest, 10);
    if (*rest != '.' || group < 0 || group >= MOST_GROUPS) return AB_OK;
    parameter *grown = realloc(b->parameter, (size_t)(b->parameters + 1) * sizeof *grown);
    if (grown) b->parameter = grown;
    parameter p = {.group = (int)group, .ndim = value->ndim, .count = 1, .name = ab_text_new("%s", rest + 1)};
    if (!grown || !p.name) {
        free(p.name);
        return ab_fail(AB_NO_MEMORY, "out of memory for the parameters");
    }
    b->parameter[b->parameters++] = p;
    if (group >= b->groups) b->groups = (int)group + 1;
    for (int d = 0; d < value->ndim; d++) {
        const int64_t n = value->dim[d];
        parameter *own = &b->parameter[b->parameters - 1];
        own->dim[d] = n;
        if (n < 0 || (n > 0 && own->count > INT64_MAX / n / 2))
            return ab_fail(AB_INPUT, "param_shapes: expected the sizes of \"%s\"",
                           ab_text_brief(rest + 1, 80));
        own->count *= n;
    }
    return AB_OK;
}

/* "optimizer_state_dict.param_alignment_paddings.GROUP.INDEX": elements behind a parameter. */
static ab_status see_padding(void *context, const char *name, const ab_tensor_value *value) {
    static const char mark[] = "optimizer_state_dict.param_alignment_paddings.";
    builder *b = context;
    char *rest;
    if (value->kind != AB_VALUE_NUMBER || strncmp(name, mark, strlen(mark)) != 0) return AB_OK;
    const long group = strtol(name + strlen(mark), &rest, 10);
    long index = *rest == '.' ? strtol(rest + 1, &rest, 10) : -1;
    for (int i = 0; i < b->parameters && index >= 0 && *rest == '\0'; i++)
        if (b->parameter[i].group == group && index-- == 0 && value->number >= 0 && value->number < 0x1p32)
            b->parameter[i].padding = (int64_t)value->number;
    return AB_OK;
}

/* ---- vectors ---------------------------------------------------------------------------------- */

static const ab_tensor_entry *find(const ab_tensorfile *file, const char *name) {
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

/* Names of a group's vector in a partition: the fp32 weights, or "exp_avg", ... of the optimizer. */
static const ab_tensor_entry *vector_of(const builder *b, int rank, int group, const char *key) {
    static const char top[] = "optimizer_state_dict";
    char name[NAME];
    if (key)
        ab_text_exact(name, sizeof name, "%s.%s.state.%d.%s", top, b->cut ? top : "base_optimizer_state",
                      group, key);
    else
        ab_text_exact(name, sizeof name, "%s.%s.%d", top,
                      b->cut ? "fp32_flat_groups" : "single_partition_of_fp32_groups", group);
    return find(b->to->rank[rank], name);
}

/* Adds elements [from, from + count) of a vector as those from `at` on of the tensor. */
static ab_status add_span(ab_assembly *a, const span *vector, int spans, int64_t from, int64_t count,
                          int64_t at) {
    for (int i = 0; i < spans && count > 0; i++) {
        const int64_t length = vector[i].entry->count;
        if (from >= length) {
            from -= length;
            continue;
        }
        const int64_t n = length - from < count ? length - from : count;
        AB_TRY(ab_assembly_add(a, &(ab_piece){.file = vector[i].file,
                                              .entry = vector[i].entry,
                                              .first = from,
                                              .offset = {at},
                                              .size = {n}}));
        at += n;
        count -= n;
        from = 0;
    }
    return count == 0 ? AB_OK : ab_fail(AB_INPUT, "the partitions have fewer elements than the parameters");
}

/* The vectors of a group over all ranks (rank -1), or of a rank over all groups (group -1). */
static int collect(const builder *b, int rank, int group, const char *key, span *vector) {
    int spans = 0;
    for (int i = 0; i < (rank < 0 ? b->to->ranks : MOST_GROUPS); i++) {
        const int r = rank < 0 ? i : rank;
        const ab_tensor_entry *entry = vector_of(b, r, group < 0 ? i : group, key);
        if (!entry) break;
        vector[spans++] = (span){b->to->rank[r], entry};
    }
    return spans;
}

/* ---- the tensors of the set ------------------------------------------------------------------- */

/* Elements lie in their order, whatever the shape. */
static ab_status new_tensor(builder *b, const char *name, const parameter *p, ab_assembly **a) {
    AB_TRY(ab_assembled_add(&b->to->set, b->file, name, p->ndim, p->dim, a));
    (*a)->ndim = 1;
    (*a)->dim[0] = p->count;
    return AB_OK;
}

/* Stages 1 and 2: parameters lie end to end in their group. `offset` is that of the parameter. */
static ab_status add_laid(builder *b, const char *name, const parameter *p, const char *key, int64_t offset,
                          span *vector) {
    ab_assembly *a;
    const int spans = collect(b, -1, p->group, key, vector);
    if (spans == 0) return AB_OK; /* an optimizer without such a state */
    AB_TRY(new_tensor(b, name, p, &a));
    AB_TRY(add_span(a, vector, spans, offset, p->count, 0));
    return ab_assembled_finish(&b->to->set, b->file);
}

/* Stage 3: every rank has its part of every parameter, at the same offset. */
static ab_status add_cut(builder *b, const char *name, const parameter *p, const char *key, int64_t offset,
                         span *vector) {
    ab_assembly *a;
    const int64_t ranks = b->to->ranks, part = (p->count + ranks - 1) / ranks;
    if (collect(b, 0, -1, key, vector) == 0) return AB_OK;
    AB_TRY(new_tensor(b, name, p, &a));
    for (int r = 0; r < b->to->ranks; r++) {
        const int64_t at = r * part, left = p->count - at, n = left < part ? left : part;
        if (n <= 0) break;
        AB_TRY(add_span(a, vector, collect(b, r, -1, key, vector), offset, n, at));
    }
    return ab_assembled_finish(&b->to->set, b->file);
}

static ab_status add_vector(builder *b, const char *pattern, const parameter *p, const char *key,
                            int64_t offset, span *vector) {
    char name[NAME];
    if (!ab_text_fits(name, sizeof name, "%s%s%s%s", pattern, p->name, key ? "." : "", key ? key : ""))
        return ab_fail(AB_INPUT, "a parameter has a name of more than %d bytes", NAME);
    return b->cut ? add_cut(b, name, p, key, offset, vector) : add_laid(b, name, p, key, offset, vector);
}

/* A tensor of a file as it is. */
static ab_status add_whole(builder *b, const char *name, const ab_tensorfile *file,
                           const ab_tensor_entry *entry) {
    ab_assembly *a;
    ab_piece piece = {.file = file, .entry = entry};
    AB_TRY(ab_assembled_add(&b->to->set, b->file, name, entry->ndim, entry->dim, &a));
    memcpy(piece.size, entry->dim, (size_t)entry->ndim * sizeof *piece.size);
    AB_TRY(ab_assembly_add(a, &piece));
    return ab_assembled_finish(&b->to->set, b->file);
}

static ab_status add_step(builder *b, const parameter *p) {
    char name[NAME];
    const ab_tensor_entry *entry = vector_of(b, 0, b->cut ? 0 : p->group, "step");
    if (!entry || !ab_text_fits(name, sizeof name, "optimizer.state.%s.step", p->name)) return AB_OK;
    return add_whole(b, name, b->to->rank[0], entry);
}

static ab_status add_parameters(builder *b, span *vector) {
    int64_t offset = 0;
    for (int i = 0; i < b->parameters; i++) {
        const parameter *p = &b->parameter[i];
        if (i > 0 && !b->cut && p->group != p[-1].group) offset = 0;
        if (b->cut) AB_TRY(add_vector(b, "module.", p, NULL, offset, vector));
        if (!b->cut) AB_TRY(add_vector(b, "optimizer.fp32.", p, NULL, offset, vector));
        AB_TRY(add_vector(b, "optimizer.state.", p, "exp_avg", offset, vector));
        AB_TRY(add_vector(b, "optimizer.state.", p, "exp_avg_sq", offset, vector));
        AB_TRY(add_step(b, p));
        offset += b->cut ? (p->count + b->to->ranks - 1) / b->to->ranks : p->count + p->padding;
    }
    return AB_OK;
}

/* Tensors of the model states; of stage 3, where they are empty, those that are no parameters. */
static ab_status add_model(builder *b) {
    for (int i = 0; i < b->to->model->count; i++) {
        const ab_tensor_entry *entry = &b->to->model->tensor[i];
        if (b->cut && b->parameters > 0 && entry->count == 0) continue;
        AB_TRY(add_whole(b, entry->name, b->to->model, entry));
    }
    return AB_OK;
}

/* Partitions of which nothing says what is in them. */
static ab_status add_partitions(builder *b) {
    char name[NAME];
    for (int r = 0; r < b->to->ranks; r++)
        for (int i = 0; i < b->to->rank[r]->count; i++) {
            const ab_tensor_entry *entry = &b->to->rank[r]->tensor[i];
            const bool fits = r == 0 ? ab_text_fits(name, sizeof name, "%s", entry->name)
                                     : ab_text_fits(name, sizeof name, "%s~rank%d", entry->name, r);
            if (!fits) continue;
            AB_TRY(add_whole(b, name, b->to->rank[r], entry));
        }
    return AB_OK;
}

static ab_status build(void *context, ab_tensorfile *file) {
    builder *b = context;
    b->file = file;
    AB_TRY(open_files(b, b->path));
    AB_TRY(ab_tensorfile_values(b->to->model, see_shape, b));
    AB_TRY(ab_tensorfile_values(b->to->rank[0], see_padding, b));
    b->cut = find(b->to->rank[0], "optimizer_state_dict.fp32_flat_groups.0") != NULL;
    AB_TRY(add_model(b));
    const bool told = b->parameters > 0 && vector_of(b, 0, 0, NULL);
    if (!told) return add_partitions(b);
    span *vector = calloc(MOST_RANKS > MOST_GROUPS ? MOST_RANKS : MOST_GROUPS, sizeof *vector);
    if (!vector) return ab_fail(AB_NO_MEMORY, "out of memory for the partitions");
    const ab_status status = add_parameters(b, vector);
    free(vector);
    return status;
}

/* ---- the reader ------------------------------------------------------------------------------- */

static ab_status values(const ab_tensorfile *file, ab_value_visitor visit, void *context) {
    const zero *z = file->reader_data;
    AB_TRY(ab_tensorfile_values(z->model, visit, context));
    return ab_tensorfile_values(z->rank[0], visit, context);
}

static void release(ab_tensorfile *file) {
    zero *z = file->reader_data;
    if (z) free(z->rank);
    ab_assembled_release(file);
}

static const ab_tensor_reader reader = {
    .name = "partitions of ZeRO",
    .suffix = "",
    .text = "model states of DeepSpeed's ZeRO with the partitions beside them",
    .elsewhere = ab_assembled_elsewhere,
    .files = ab_assembled_files,
    .unpack_begin = ab_assembled_begin,
    .unpack = ab_assembled_next,
    .unpack_end = ab_assembled_end,
    .values = values,
    .release = release,
};

ab_status ab_zero_open(const char *path, ab_tensorfile **file) {
    builder b = {.path = path, .to = calloc(1, sizeof *b.to)};
    const ab_status status = ab_assembled_build(path, &reader, b.to, build, &b, file);
    for (int i = 0; i < b.parameters; i++) free(b.parameter[i].name);
    free(b.parameter);
    return status;
}
