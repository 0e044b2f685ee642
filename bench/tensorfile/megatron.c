/* Puts the files of Megatron's ranks together. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/megatron.h"

#include "bench/tensorfile/assembled.h"
#include "kernels/core/text.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME = 4200, PATH_TEXT = 4096, MOST_RANKS = 4096 };

typedef struct rank {
    char *folder; /* owned; "mp_rank_01_000" */
    int tensor, stage, expert;
    ab_tensorfile *file;
} rank;

/* A tensor of a rank. */
typedef struct shard {
    int rank, next; /* next: of the same name; -1: none */
    const ab_tensor_entry *entry;
    char *name, *weight; /* owned; in the set, and of the weight that it belongs to or NULL */
    bool follows;        /* another one of its name comes before it */
} shard;

typedef struct megatron {
    ab_assembled set; /* first, as ab_assembled_release is given it */
    rank *rank;
    int ranks;
} megatron;

typedef struct builder {
    const char *path; /* borrowed */
    ab_tensorfile *file;
    megatron *to;
    shard *shard;
    int shards, room;
    int tensors; /* tensor-parallel ranks */
    int unknown; /* shards of which the split is not known */
} builder;

static ab_status no_memory(void) {
    ab_fail(AB_NO_MEMORY, "out of memory for the ranks");
    return AB_NO_MEMORY;
}

/* ---- names of files --------------------------------------------------------------------------- */

static const char *base_of(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

static bool is_rank_folder(const struct dirent *entry) {
    static const char mark[] = "mp_rank_";
    return strncmp(entry->d_name, mark, strlen(mark)) == 0 && entry->d_name[strlen(mark)] >= '0' &&
           entry->d_name[strlen(mark)] <= '9';
}

static int accept(const struct dirent *entry) { return is_rank_folder(entry); }

static bool is_rank_file(const char *base) {
    return strcmp(base, "model_optim_rng.pt") == 0 || strcmp(base, "model_rng.pt") == 0;
}

/* Splits ".../mp_rank_00/model_optim_rng.pt": the folder above both, with its /, and where that of the rank
 * begins in the path; false: it is no such path. */
static bool split_path(const char *path, char above[PATH_TEXT], const char **own) {
    const char *base = base_of(path), *at = base;
    if (!is_rank_file(base) || at - path < 2) return false;
    for (at -= 2; at > path && *at != '/';) at--;
    *own = *at == '/' ? at + 1 : at;
    return strncmp(*own, "mp_rank_", strlen("mp_rank_")) == 0 &&
           ab_text_fits(above, PATH_TEXT, "%.*s", (int)(*own - path), path);
}

/* The folders of ranks that have the file, in the order of their names; freed by free_names. */
static int list_ranks(const char *path, struct dirent ***names) {
    char above[PATH_TEXT], file[2 * PATH_TEXT];
    const char *own;
    struct stat about;
    int kept = 0;
    *names = NULL;
    if (!split_path(path, above, &own)) return 0;
    const int count = scandir(above[0] ? above : ".", names, accept, alphasort);
    for (int i = 0; i < count; i++) {
        if (ab_text_fits(file, sizeof file, "%s%s/%s", above, (*names)[i]->d_name, base_of(path)) &&
            stat(file, &about) == 0)
            (*names)[kept++] = (*names)[i];
        else
            free((*names)[i]);
    }
    return kept;
}

static void free_names(struct dirent **names, int count) {
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

bool ab_megatron_recognise(const char *path) {
    struct dirent **names;
    const int count = list_ranks(path, &names);
    free_names(names, count);
    return count > 1;
}

bool ab_megatron_is_part(const char *path) {
    char above[PATH_TEXT];
    const char *own;
    struct dirent **names;
    if (!split_path(path, above, &own)) return false;
    const int count = list_ranks(path, &names);
    const size_t length = strcspn(own, "/");
    const bool part =
        count > 1 && (strncmp(names[0]->d_name, own, length) != 0 || names[0]->d_name[length] != '\0');
    free_names(names, count);
    return part;
}

/* ---- ranks ------------------------------------------------------------------------------------ */

/* "mp_rank_01_002_003": tensor, stage, expert; of two numbers the second is the expert's where the saved
 * arguments have one stage. */
static void read_numbers(rank *r) {
    int second = 0;
    if (sscanf(r->folder, "mp_rank_%d_%d_%d", &r->tensor, &second, &r->expert) < 2) second = 0;
    r->stage = second;
}

static ab_status open_rank(builder *b, const char *path, const char *above, const char *folder) {
    char file[2 * PATH_TEXT];
    rank *r = &b->to->rank[b->to->ranks];
    r->folder = ab_text_new("%s", folder);
    if (!r->folder) return no_memory();
    b->to->ranks++;
    read_numbers(r);
    ab_text_show(file, sizeof file, "%s%s/%s", above, folder, base_of(path));
    AB_TRY(ab_tensorfile_open_part(file, &r->file));
    return ab_assembled_keep(&b->to->set, r->file);
}

static int by_place(const void *a, const void *b) {
    const rank *x = a, *y = b;
    if (x->stage != y->stage) return x->stage - y->stage;
    return x->expert != y->expert ? x->expert - y->expert : x->tensor - y->tensor;
}

/* Of the saved arguments: how many stages there are. */
static ab_status see_argument(void *context, const char *name, const ab_tensor_value *value) {
    double *stages = context;
    if (value->kind == AB_VALUE_NUMBER && strcmp(name, "args.pipeline_model_parallel_size") == 0)
        *stages = value->number;
    return AB_OK;
}

static ab_status use_arguments(builder *b) {
    double stages = 0;
    AB_TRY(ab_tensorfile_values(b->to->rank[0].file, see_argument, &stages));
    for (int i = 0; i < b->to->ranks; i++) {
        rank *r = &b->to->rank[i];
        if (stages == 1 && r->expert == 0 && r->stage > 0) {
            r->expert = r->stage;
            r->stage = 0;
        }
        if (r->tensor >= b->tensors) b->tensors = r->tensor + 1;
    }
    if (b->tensors > MOST_RANKS) return ab_fail(AB_INPUT, "expected at most %d ranks", MOST_RANKS);
    qsort(b->to->rank, (size_t)b->to->ranks, sizeof *b->to->rank, by_place);
    return AB_OK;
}

static ab_status open_ranks(builder *b, const char *path) {
    char above[PATH_TEXT];
    const char *own;
    struct dirent **names;
    const int count = list_ranks(path, &names);
    ab_status status = AB_OK;
    b->to->rank = calloc((size_t)count + 1, sizeof *b->to->rank);
    if (!b->to->rank) status = no_memory();
    if (status == AB_OK && (count == 0 || count > MOST_RANKS || !split_path(path, above, &own))) {
        ab_fail(AB_INPUT, "expected at most %d ranks, found %d", MOST_RANKS, count);
        status = AB_INPUT;
    }
    for (int i = 0; i < count && status == AB_OK; i++) status = open_rank(b, path, above, names[i]->d_name);
    free_names(names, count);
    return status == AB_OK ? use_arguments(b) : status;
}

/* ---- names of weights ------------------------------------------------------------------------- */

/* "model.", "model0.", ...: where the weight's name begins and which chunk it is of; 0: it is no weight. */
static int model_prefix(const char *name, long *chunk) {
    char *end;
    if (strncmp(name, "model", 5) != 0) return 0;
    *chunk = name[5] == '.' ? 0 : strtol(name + 5, &end, 10);
    if (name[5] == '.') return 6;
    return end > name + 5 && *end == '.' && *chunk >= 0 ? (int)(end + 1 - name) : 0;
}

/* The number behind `mark` ("layers."), with where it begins and ends; -1: there is none. */
static long numbered(const char *name, const char *mark, const char **begin, const char **end) {
    char *rest;
    const char *at = strstr(name, mark);
    if (!at) return -1;
    *begin = at + strlen(mark);
    const long number = strtol(*begin, &rest, 10);
    *end = rest;
    return rest > *begin && *rest == '.' && number >= 0 && number < INT32_MAX / 4 ? number : -1;
}

/* How many layers, or local experts, the file has behind the same text, which ends at `begin` in `name`. */
static long count_like(const ab_tensorfile *file, const char *name, const char *begin) {
    long most = 0;
    const size_t length = (size_t)(begin - name);
    for (int i = 0; i < file->count; i++) {
        const char *other = file->tensor[i].name;
        if (strncmp(other, name, length) != 0) continue;
        const long number = strtol(other + length, NULL, 10) + 1;
        if (number > most && number < INT32_MAX / 4) most = number;
    }
    return most;
}

/* Layers before those of the rank: in all stages of earlier chunks, and in earlier stages of its own. */
static long layers_before(const builder *b, const rank *r, long chunk, bool chunked, const char *stack) {
    long before = 0;
    char name[NAME];
    for (int i = 0; i < b->to->ranks; i++) {
        const rank *other = &b->to->rank[i];
        if (i > 0 && other->stage == other[-1].stage) continue; /* one rank of each stage */
        for (long c = 0; c <= chunk; c++) {
            if (c == chunk && other->stage >= r->stage) continue;
            const bool fits = chunked ? ab_text_fits(name, sizeof name, "model%ld.%s", c, stack)
                                      : ab_text_fits(name, sizeof name, "model.%s", stack);
            if (fits) before += count_like(other->file, name, name + strlen(name));
        }
    }
    return before;
}

/* The names that were made last in a rank: layers come one behind the other. */
typedef struct counted {
    char stack[NAME];
    int rank;
    long chunk, before;
} counted;

/* "decoder.layers.3.mlp...." with the layer counted through all stages, in name[NAME]. */
static bool global_layers(const builder *b, int own, const char *full, int start, long chunk, counted *last,
                          char name[NAME]) {
    const char *begin, *end, *weight = full + start;
    const long local = numbered(weight, "layers.", &begin, &end);
    char stack[NAME];
    if (local < 0) return ab_text_fits(name, NAME, "%s", weight);
    if (!ab_text_fits(stack, sizeof stack, "%.*s", (int)(begin - weight), weight)) return false;
    if (last->rank != own || last->chunk != chunk || strcmp(last->stack, stack) != 0) {
        last->before = layers_before(b, &b->to->rank[own], chunk, full[5] != '.', stack);
        last->rank = own;
        last->chunk = chunk;
        memcpy(last->stack, stack, sizeof stack);
    }
    return ab_text_fits(name, NAME, "%s%ld%s", stack, last->before + local, end);
}

/* "...local_experts.3...." counted through all expert ranks. `full` is the name in the file. */
static bool global_experts(const builder *b, int own, const char *full, char name[NAME]) {
    const char *begin, *end, *inner, *rest;
    const rank *r = &b->to->rank[own];
    const long local = numbered(full, "local_experts.", &begin, &end);
    char copy[NAME];
    if (r->expert == 0 || local < 0) return true;
    const long each = count_like(r->file, full, begin);
    memcpy(copy, name, NAME);
    if (numbered(copy, "local_experts.", &inner, &rest) != local) return true;
    return ab_text_fits(name, NAME, "%.*s%ld%s", (int)(inner - copy), copy, r->expert * each + local, rest);
}

/* ---- the optimizer's tensors ------------------------------------------------------------------ */

static bool same_shape(const ab_tensor_entry *a, const ab_tensor_entry *b) {
    bool same = a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && same; d++) same = a->dim[d] == b->dim[d];
    return same;
}

/* A tensor of the optimizer that stands for a parameter. */
typedef struct slot {
    long id; /* in the state */
    const ab_tensor_entry *entry;
    int weight; /* shard; -1: not known */
} slot;

typedef struct slots {
    slot *slot; /* owned */
    int count;
} slots;

static int by_id(const void *a, const void *b) {
    const slot *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* "optimizer.optimizer.state.12.exp_avg": 12, and the key; -1: it is no such name. */
static long state_id(const char *name, const char **key) {
    const char *begin, *end;
    const long id = strncmp(name, "optimizer.", 10) == 0 ? numbered(name, ".state.", &begin, &end) : -1;
    *key = id >= 0 ? end + 1 : NULL;
    return id;
}

/* "optimizer.fp32_from_fp16_params.0.3" */
static bool is_master(const char *name) { return strstr(name, ".fp32_from_fp16_params.") != NULL; }

static ab_status add_slot(slots *s, long id, const ab_tensor_entry *entry) {
    slot *grown = realloc(s->slot, (size_t)(s->count + 1) * sizeof *grown);
    if (!grown) return no_memory();
    s->slot = grown;
    s->slot[s->count++] = (slot){id, entry, -1};
    return AB_OK;
}

static ab_status collect(const ab_tensorfile *file, slots *masters, slots *states) {
    const char *key;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *entry = &file->tensor[i];
        const long id = state_id(entry->name, &key);
        if (is_master(entry->name)) AB_TRY(add_slot(masters, i, entry));
        if (id >= 0 && strcmp(key, "exp_avg") == 0) AB_TRY(add_slot(states, id, entry));
    }
    if (states->count > 1) qsort(states->slot, (size_t)states->count, sizeof *states->slot, by_id);
    return AB_OK;
}

/* Shards [from, to) are the weights of the rank: the k-th of a shape is of the k-th slot of that shape. */
static void pair(const builder *b, int from, int to, slots *s) {
    for (int i = 0; i < s->count; i++) {
        int place = 0, slots_like = 0, weights_like = 0;
        for (int k = 0; k < s->count; k++) {
            const bool like = same_shape(s->slot[k].entry, s->slot[i].entry);
            slots_like += like;
            place += like && k < i;
        }
        for (int w = from; w < to; w++) {
            const shard *own = &b->shard[w];
            if (!own->entry->element->format || !same_shape(own->entry, s->slot[i].entry)) continue;
            if (weights_like++ == place) s->slot[i].weight = w;
        }
        if (weights_like != slots_like) s->slot[i].weight = -1;
    }
}

static const slot *slot_of(const slots *s, long id) {
    for (int i = 0; i < s->count; i++)
        if (s->slot[i].id == id) return &s->slot[i];
    return NULL;
}

/* ---- shards ----------------------------------------------------------------------------------- */

static ab_status add_shard(builder *b, int own, const ab_tensor_entry *entry, const char *name,
                           const char *weight) {
    if (b->shards == b->room) {
        const int room = b->room ? 2 * b->room : 256;
        shard *grown = realloc(b->shard, (size_t)room * sizeof *grown);
        if (!grown) return no_memory();
        b->shard = grown;
        b->room = room;
    }
    shard *s = &b->shard[b->shards++];
    *s = (shard){.rank = own, .next = -1, .entry = entry, .name = ab_text_new("%s", name)};
    if (weight) s->weight = ab_text_new("%s", weight);
    return s->name && (s->weight || !weight) ? AB_OK : no_memory();
}

static ab_status add_weights(builder *b, int own, counted *last) {
    const ab_tensorfile *file = b->to->rank[own].file;
    char weight[NAME], name[NAME];
    long chunk;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *entry = &file->tensor[i];
        const int start = model_prefix(entry->name, &chunk);
        if (start == 0) continue;
        if (!global_layers(b, own, entry->name, start, chunk, last, weight) ||
            !global_experts(b, own, entry->name, weight) || !ab_text_fits(name, NAME, "model.%s", weight))
            return ab_fail(AB_INPUT, "a weight has a name of more than %d bytes", NAME - 16);
        AB_TRY(add_shard(b, own, entry, name, weight));
    }
    return AB_OK;
}

/* A tensor of the optimizer under the name of its weight, or its own. */
static ab_status add_named(builder *b, int own, const ab_tensor_entry *entry, const slot *s,
                           const char *before, const char *key) {
    char name[NAME];
    if (!s || s->weight < 0) return add_shard(b, own, entry, entry->name, NULL);
    const char *weight = b->shard[s->weight].weight;
    if (!ab_text_fits(name, NAME, "%s%s%s%s", before, weight, key ? "." : "", key ? key : ""))
        return ab_fail(AB_INPUT, "a weight has a name of more than %d bytes", NAME - 64);
    return add_shard(b, own, entry, name, weight);
}

static ab_status add_others(builder *b, int own, const slots *masters, const slots *states) {
    const ab_tensorfile *file = b->to->rank[own].file;
    const char *key;
    long chunk;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *entry = &file->tensor[i];
        const long id = state_id(entry->name, &key);
        if (model_prefix(entry->name, &chunk) > 0) continue;
        if (is_master(entry->name))
            AB_TRY(add_named(b, own, entry, slot_of(masters, i), "optimizer.fp32.", NULL));
        else if (id >= 0)
            AB_TRY(add_named(b, own, entry, slot_of(states, id), "optimizer.state.", key));
        else
            AB_TRY(add_shard(b, own, entry, entry->name, NULL));
    }
    return AB_OK;
}

static ab_status add_rank(builder *b, int own, counted *last) {
    slots masters = {NULL, 0}, states = {NULL, 0};
    const int from = b->shards;
    ab_status status = add_weights(b, own, last);
    const int to = b->shards;
    if (status == AB_OK) status = collect(b->to->rank[own].file, &masters, &states);
    if (status == AB_OK) {
        pair(b, from, to, &masters);
        pair(b, from, to, &states);
        status = add_others(b, own, &masters, &states);
    }
    free(masters.slot);
    free(states.slot);
    return status;
}

static ab_status list_shards(builder *b) {
    counted *last = calloc(1, sizeof *last);
    ab_status status = last ? AB_OK : no_memory();
    for (int i = 0; i < b->to->ranks && status == AB_OK; i++) status = add_rank(b, i, last);
    free(last);
    return status;
}

static int by_name(const void *a, const void *b) {
    const shard *const *x = a, *const *y = b;
    const int order = strcmp((*x)->name, (*y)->name);
    return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* Chains the shards of one name, in their order. */
static ab_status chain(builder *b) {
    shard **sorted = malloc(((size_t)b->shards + 1) * sizeof *sorted);
    if (!sorted) return no_memory();
    for (int i = 0; i < b->shards; i++) sorted[i] = &b->shard[i];
    if (b->shards > 1) qsort(sorted, (size_t)b->shards, sizeof *sorted, by_name);
    for (int i = 1; i < b->shards; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0) continue;
        sorted[i - 1]->next = (int)(sorted[i] - b->shard);
        sorted[i]->follows = true;
    }
    free(sorted);
    return AB_OK;
}

/* ---- the tensors of the set ------------------------------------------------------------------- */

static const ab_tensorfile *file_of(const builder *b, const shard *s) { return b->to->rank[s->rank].file; }

static bool same_bytes(const builder *b, const shard *x, const shard *y) {
    const ab_tensor_entry *a = x->entry, *c = y->entry;
    return same_shape(a, c) && a->element == c->element && !a->packed && !c->packed && !a->stride &&
           !c->stride &&
           (a->bytes == 0 ||
            memcmp(file_of(b, x)->map + a->offset, file_of(b, y)->map + c->offset, (size_t)a->bytes) == 0);
}

/* The first of every tensor-parallel rank in of[b->tensors], NULL: it has none; false: another one of the
 * same rank differs. *given: how many there are. */
static bool by_rank(const builder *b, const shard *head, const shard **of, int *given) {
    *given = 0;
    memset(of, 0, (size_t)b->tensors * sizeof *of);
    for (const shard *s = head; s; s = s->next >= 0 ? &b->shard[s->next] : NULL) {
        const int t = b->to->rank[s->rank].tensor;
        if (of[t] && !same_bytes(b, of[t], s)) return false;
        *given += !of[t];
        if (!of[t]) of[t] = s;
    }
    return true;
}

static bool all_same(const builder *b, const shard **of) {
    for (int t = 1; t < b->tensors; t++)
        if (!same_bytes(b, of[0], of[t])) return false;
    return true;
}

/* Shapes and types that can be laid side by side along the axis. */
static bool aligned(const builder *b, const shard **of, int axis) {
    for (int t = 0; t < b->tensors; t++)
        if (!same_shape(of[0]->entry, of[t]->entry) || of[0]->entry->element != of[t]->entry->element ||
            of[t]->entry->packed)
            return false;
    return of[0]->entry->ndim > axis;
}

static const shard *weight_named(const builder *b, int own, const char *weight) {
    for (int i = 0; i < b->shards; i++) {
        const shard *s = &b->shard[i];
        if (s->rank == own && strncmp(s->name, "model.", 6) == 0 && strcmp(s->name + 6, weight) == 0)
            return s;
    }
    return NULL;
}

/* Parts of the rows of an fc1: 2 if they are gate and input, 1 if not; 0: not known. */
static int parts_of(const builder *b, const shard *fc1) {
    char name[NAME];
    if (!ab_megatron_fc2_of(fc1->weight, name, sizeof name)) return 0;
    const shard *fc2 = weight_named(b, fc1->rank, name);
    const int64_t rows = fc1->entry->dim[0];
    if (!fc2 || fc2->entry->ndim != 2) return 0;
    return rows == fc2->entry->dim[1] ? 1 : rows == 2 * fc2->entry->dim[1] ? 2 : 0;
}

static ab_status add_piece(const builder *b, const shard *s, ab_assembly *a, int64_t first, int axis,
                           int64_t offset, int64_t length) {
    ab_piece piece = {.file = file_of(b, s), .entry = s->entry, .first = first};
    memcpy(piece.size, s->entry->dim, (size_t)s->entry->ndim * sizeof *piece.size);
    if (s->entry->ndim > 0) {
        piece.offset[axis] = offset;
        piece.size[axis] = length;
    }
    return ab_assembly_add(a, &piece);
}

static ab_status add_whole(builder *b, const shard *s, const char *name) {
    ab_assembly *a;
    AB_TRY(ab_assembled_add(&b->to->set, b->file, name, s->entry->ndim, s->entry->dim, &a));
    AB_TRY(add_piece(b, s, a, 0, 0, 0, s->entry->ndim > 0 ? s->entry->dim[0] : 0));
    return ab_assembled_finish(&b->to->set, b->file);
}

/* Shards of all ranks side by side; in `parts`, each of all ranks. */
static ab_status add_joined(builder *b, const shard **of, int axis, int parts) {
    const ab_tensor_entry *one = of[0]->entry;
    const int64_t length = one->dim[axis] / parts;
    int64_t dim[AB_TENSORFILE_MAX_DIMS];
    ab_assembly *a;
    memcpy(dim, one->dim, (size_t)one->ndim * sizeof *dim);
    dim[axis] *= b->tensors;
    AB_TRY(ab_assembled_add(&b->to->set, b->file, of[0]->name, one->ndim, dim, &a));
    for (int p = 0; p < parts; p++)
        for (int t = 0; t < b->tensors; t++)
            AB_TRY(add_piece(b, of[t], a, p * (one->count / parts), axis, (p * b->tensors + t) * length,
                             length));
    return ab_assembled_finish(&b->to->set, b->file);
}

/* Every shard by itself, with its rank in the name. */
static ab_status add_apart(builder *b, const shard *head) {
    char name[NAME];
    for (const shard *s = head; s; s = s->next >= 0 ? &b->shard[s->next] : NULL) {
        if (!ab_text_fits(name, sizeof name, "%s~%s", s->name, b->to->rank[s->rank].folder))
            return ab_fail(AB_INPUT, "a tensor has a name of more than %d bytes", NAME - 64);
        b->unknown += s->entry->element->format != NULL;
        AB_TRY(add_whole(b, s, name));
    }
    return AB_OK;
}

/* The axis along which the shards are joined, and in how many parts; -1: along none. */
static int axis_of(const builder *b, const shard *head, const shard **of, int *parts) {
    const ab_megatron_split split = head->weight ? ab_megatron_split_of(head->weight) : AB_MEGATRON_UNKNOWN;
    *parts = 1;
    if (split == AB_MEGATRON_COLUMNS) return aligned(b, of, 1) ? 1 : -1;
    if ((split != AB_MEGATRON_ROWS && split != AB_MEGATRON_FC1) || !aligned(b, of, 0)) return -1;
    if (split == AB_MEGATRON_FC1) *parts = parts_of(b, of[0]);
    return *parts > 0 ? 0 : -1;
}

static ab_status add_tensor(builder *b, const shard *head, const shard **of) {
    int given, parts;
    const bool agree = by_rank(b, head, of, &given);
    if (!agree || (b->tensors > 1 && given != b->tensors)) return add_apart(b, head);
    const int axis = b->tensors > 1 ? axis_of(b, head, of, &parts) : -1;
    if (axis >= 0) return add_joined(b, of, axis, parts);
    return all_same(b, of) ? add_whole(b, of[0], head->name) : add_apart(b, head);
}

/* Tensors whose split is not known are told of. */
static ab_status set_note(builder *b) {
    if (b->unknown == 0) return AB_OK;
    b->file->note =
        ab_text_new("%d tensors are those of one rank, NAME~mp_rank_...: how they are split, or which "
                    "is right, is not known",
                    b->unknown);
    return b->file->note ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory for a note");
}

static ab_status build(void *context, ab_tensorfile *file) {
    builder *b = context;
    b->file = file;
    AB_TRY(open_ranks(b, b->path));
    AB_TRY(list_shards(b));
    AB_TRY(chain(b));
    const shard **of = calloc((size_t)b->tensors + 1, sizeof *of);
    ab_status status = of ? AB_OK : no_memory();
    for (int i = 0; i < b->shards && status == AB_OK; i++)
        if (!b->shard[i].follows) status = add_tensor(b, &b->shard[i], of);
    free(of);
    return status == AB_OK ? set_note(b) : status;
}

/* ---- the reader ------------------------------------------------------------------------------- */

static ab_status values(const ab_tensorfile *file, ab_value_visitor visit, void *context) {
    const megatron *m = file->reader_data;
    return ab_tensorfile_values(m->rank[0].file, visit, context);
}

static int files(const ab_tensorfile *file) {
    const megatron *m = file->reader_data;
    return m->ranks;
}

static void release(ab_tensorfile *file) {
    megatron *m = file->reader_data;
    for (int i = 0; m && i < m->ranks; i++) free(m->rank[i].folder);
    if (m) free(m->rank);
    ab_assembled_release(file);
}

static const ab_tensor_reader reader = {
    .name = "ranks of Megatron",
    .suffix = "",
    .text = "the files of Megatron-LM's ranks, mp_rank_*/model_optim_rng.pt",
    .elsewhere = ab_assembled_elsewhere,
    .files = files,
    .unpack_begin = ab_assembled_begin,
    .unpack = ab_assembled_next,
    .unpack_end = ab_assembled_end,
    .values = values,
    .release = release,
};

static void free_shards(builder *b) {
    for (int i = 0; i < b->shards; i++) {
        free(b->shard[i].name);
        free(b->shard[i].weight);
    }
    free(b->shard);
}

ab_status ab_megatron_open(const char *path, ab_tensorfile **file) {
    builder b = {.path = path, .to = calloc(1, sizeof *b.to)};
    const ab_status status = ab_assembled_build(path, &reader, b.to, build, &b, file);
    free_shards(&b);
    return status;
}
