/* What stands for all tensors of a folder. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/open_set.h"

#include "bench/tensorfile/folder.h"
#include "bench/tensorfile/megatron.h"
#include "bench/tensorfile/zero.h"
#include "kernels/core/text.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT = 4096 };

static bool is_index(const struct dirent *entry) {
    static const char suffix[] = ".index.json";
    const size_t n = strlen(entry->d_name), m = strlen(suffix);
    return strcmp(entry->d_name, ".metadata") == 0 || (n > m && strcmp(entry->d_name + n - m, suffix) == 0);
}

static int accept(const struct dirent *entry) { return is_index(entry); }

/* The first of .metadata and the indices, of which those of safetensors come before others by name. */
static ab_status find_index(const char *folder, char path[PATH_TEXT], bool *found) {
    struct dirent **entry;
    const int count = scandir(folder, &entry, accept, alphasort);
    if (count < 0) return ab_fail(AB_INPUT, "%s: cannot be read", folder);
    *found = count > 0;
    ab_status status = AB_OK;
    if (count > 0 && !ab_text_fits(path, PATH_TEXT, "%s/%s", folder, entry[0]->d_name))
        status = ab_fail(AB_INPUT, "%s: the path is too long", folder);
    for (int i = 0; i < count; i++) free(entry[i]);
    free(entry);
    return status;
}

static ab_status open_only_file(const char *folder, ab_tensorfile **file) {
    ab_tensor_paths paths = {NULL, 0};
    ab_status status = ab_tensor_paths_add(folder, &paths);
    if (status == AB_OK && paths.count != 1)
        status = ab_fail(AB_INPUT,
                         "%s: expected a folder with .metadata, an *.index.json or one tensor file, found %d "
                         "tensor files",
                         folder, paths.count);
    if (status == AB_OK) status = ab_tensorfile_open_set(paths.path[0], file);
    ab_tensor_paths_free(&paths);
    return status;
}

ab_status ab_tensorfile_open_set(const char *path, ab_tensorfile **file) {
    char index[PATH_TEXT];
    bool found = false;
    if (ab_zero_recognise(path)) return ab_zero_open(path, file);
    if (ab_megatron_recognise(path)) return ab_megatron_open(path, file);
    if (!ab_tensor_is_folder(path)) return ab_tensorfile_open(path, file);
    AB_TRY(find_index(path, index, &found));
    return found ? ab_tensorfile_open(index, file) : open_only_file(path, file);
}
