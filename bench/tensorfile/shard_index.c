/* *.index.json, as Hugging Face's libraries write it beside the shards of a model: which tensor is in which
 * file (safetensors or torch.save). {"metadata": {...}, "weight_map": {"name":
 * "model-00001-of-00002.safetensors"}} */
#define _GNU_SOURCE /* memmem */
#include "bench/tensorfile/assembled.h"
#include "bench/tensorfile/json_scan.h"
#include "kernels/core/text.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK = 1 << 20 };

static bool recognise(const uint8_t *bytes, int64_t size) {
    static const char mark[] = "\"weight_map\"";
    int64_t at = 0;
    while (at < size && (bytes[at] == ' ' || bytes[at] == '\n' || bytes[at] == '\r' || bytes[at] == '\t'))
        at++;
    return at < size && bytes[at] == '{' &&
           memmem(bytes, (size_t)(size < LOOK ? size : LOOK), mark, strlen(mark)) != NULL;
}

static ab_status add_tensor(ab_assembled *set, ab_tensorfile *file, const char *name, const char *shard) {
    ab_tensorfile *in;
    const ab_tensor_entry *entry;
    ab_assembly *assembly;
    AB_TRY(ab_assembled_open(set, file->path, shard, false, &in));
    AB_TRY(ab_tensorfile_find(in, name, &entry));
    AB_TRY(ab_assembled_add(set, file, name, entry->ndim, entry->dim, &assembly));
    ab_piece piece = {.file = in, .entry = entry};
    memcpy(piece.size, entry->dim, (size_t)entry->ndim * sizeof *piece.size);
    AB_TRY(ab_assembly_add(assembly, &piece));
    return ab_assembled_finish(set, file);
}

static ab_status read_map(ab_json_scan *scan, ab_assembled *set, ab_tensorfile *file) {
    int64_t index = 0;
    bool more;
    AB_TRY(ab_json_open(scan, '{'));
    for (;;) {
        char *name = NULL, *shard = NULL;
        AB_TRY(ab_json_more(scan, '}', &index, &more));
        if (!more) return AB_OK;
        ab_status status = ab_json_key(scan, &name);
        if (status == AB_OK) status = ab_json_string(scan, &shard);
        if (status == AB_OK) status = add_tensor(set, file, name, shard);
        free(name);
        free(shard);
        AB_TRY(status);
    }
}

static ab_status read_index(ab_json_scan *scan, ab_assembled *set, ab_tensorfile *file) {
    int64_t index = 0;
    bool more, found = false;
    AB_TRY(ab_json_open(scan, '{'));
    for (;;) {
        char *key = NULL;
        AB_TRY(ab_json_more(scan, '}', &index, &more));
        if (!more) break;
        AB_TRY(ab_json_key(scan, &key));
        const bool map = strcmp(key, "weight_map") == 0;
        free(key);
        AB_TRY(map ? read_map(scan, set, file) : ab_json_skip(scan));
        found = found || map;
    }
    if (!found) return ab_fail(AB_INPUT, "expected a weight_map, which says what tensor is in what file");
    return ab_json_end(scan);
}

/* No tensor twice: pieces are found by the place of their entry. */
static ab_status check_names(const ab_tensorfile *file) {
    const char **names = malloc((size_t)(file->count > 0 ? file->count : 1) * sizeof *names);
    char shown[AB_TENSORFILE_TEXT];
    if (!names) return ab_fail(AB_NO_MEMORY, "out of memory for %d names", file->count);
    for (int i = 0; i < file->count; i++) names[i] = file->tensor[i].name;
    const char *twice = ab_tensor_duplicate(names, file->count);
    free(names);
    return twice ? ab_fail(AB_INPUT, "tensor \"%s\" is there twice", ab_tensor_printable(twice, shown))
                 : AB_OK;
}

static ab_status list(ab_tensorfile *file) {
    ab_json_scan scan;
    ab_assembled *set = calloc(1, sizeof *set);
    if (!set) return ab_fail(AB_NO_MEMORY, "out of memory for an index");
    file->reader_data = set;
    AB_TRY(ab_json_begin(&scan, (const char *)file->map, (size_t)file->size));
    AB_TRY(read_index(&scan, set, file));
    return check_names(file);
}

const ab_tensor_reader ab_tensor_reader_shard_index = {
    .name = "an index of shards",
    .suffix = ".index.json",
    .text = "the *.index.json of a model in several files, of safetensors or torch.save",
    .recognise = recognise,
    .list = list,
    .elsewhere = ab_assembled_elsewhere,
    .files = ab_assembled_files,
    .unpack_begin = ab_assembled_begin,
    .unpack = ab_assembled_next,
    .unpack_end = ab_assembled_end,
    .release = ab_assembled_release,
};
