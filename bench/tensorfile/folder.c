/* Lists the tensor files of folders; opens none. */
#define _POSIX_C_SOURCE 200809L
#include "bench/tensorfile/folder.h"

#include "bench/tensorfile/megatron.h"
#include "bench/tensorfile/tensorfile.h"
#include "kernels/core/text.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILES = 4096, DEPTH = 3, PATH_TEXT = 4096 };

static const char metadata[] =
    ".metadata"; /* of torch.distributed.checkpoint: stands for the files beside it */

bool ab_tensor_is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* By the suffix of a reader, or one of its others that frameworks give to tensor files. */
static bool is_tensor_file(const char *name) {
    static const char *const others[] = {"*.pth", "*.bin", "*.ckpt"};
    static const char *const left_out[] = {"rng_state*", "random_states*", "training_args.bin",
                                           "*.index.json"}; /* its shards stand beside it */
    bool found = strcmp(name, metadata) == 0;
    for (int i = 0; i < ab_tensor_reader_count(); i++) {
        const char *suffix = ab_tensor_reader_at(i)->suffix;
        const size_t n = strlen(name), m = strlen(suffix);
        found = found || (n > m && strcmp(name + n - m, suffix) == 0);
    }
    for (size_t i = 0; i < AB_COUNT_OF(others); i++) found = found || fnmatch(others[i], name, 0) == 0;
    for (size_t i = 0; i < AB_COUNT_OF(left_out); i++) found = found && fnmatch(left_out[i], name, 0) != 0;
    return found;
}

static ab_status add(ab_tensor_paths *paths, const char *path) {
    char **grown = realloc(paths->path, (size_t)(paths->count + 1) * sizeof *grown), *copy;
    if (grown) paths->path = grown;
    copy = grown ? ab_text_new("%s", path) : NULL;
    if (!copy) return ab_fail(AB_NO_MEMORY, "%s: out of memory", path);
    paths->path[paths->count++] = copy;
    return AB_OK;
}

/* A partition of DeepSpeed's ZeRO stands behind its model states (zero.h). */
static bool is_partition(const char *folder, const char *name) {
    static const char *const before[] = {"", "zero_pp_rank_0_"}; /* in the name of the model states */
    static const char rank[] = "mp_rank_";
    char path[PATH_TEXT];
    struct stat about;
    const char *at = strstr(name, rank);
    const bool partition = fnmatch("*zero_pp_rank_*_mp_rank_*_optim_states.pt", name, 0) == 0,
               other = fnmatch("zero_pp_rank_[1-9]*_mp_rank_*_model_states.pt", name, 0) == 0;
    if (!at || !(partition || other)) return false;
    at += strlen(rank);
    for (size_t i = 0; i < AB_COUNT_OF(before); i++)
        if (ab_text_fits(path, sizeof path, "%s/%smp_rank_%.*s_model_states.pt", folder, before[i],
                         (int)strcspn(at, "_"), at) &&
            stat(path, &about) == 0)
            return true;
    return false;
}

static ab_status add_folder(const char *path, int depth, ab_tensor_paths *paths);

static ab_status add_member(const char *folder, const char *name, int depth, ab_tensor_paths *paths) {
    char path[PATH_TEXT];
    if ((name[0] == '.' && strcmp(name, metadata) != 0) ||
        !ab_text_fits(path, sizeof path, "%s/%s", folder, name))
        return AB_OK;
    if (ab_tensor_is_folder(path)) return depth > 0 ? add_folder(path, depth - 1, paths) : AB_OK;
    if (!is_tensor_file(name) || is_partition(folder, name) || ab_megatron_is_part(path)) return AB_OK;
    if (paths->count >= MOST_FILES)
        return ab_fail(AB_INPUT, "%s: expected at most %d tensor files, found more", folder, MOST_FILES);
    return add(paths, path);
}

static ab_status add_folder(const char *path, int depth, ab_tensor_paths *paths) {
    struct dirent **entry;
    const int count = scandir(path, &entry, NULL, alphasort);
    ab_status status = count < 0 ? ab_fail(AB_INPUT, "%s: cannot be read", path) : AB_OK;
    for (int i = 0; i < count; i++) {
        if (status == AB_OK) status = add_member(path, entry[i]->d_name, depth, paths);
        free(entry[i]);
    }
    if (count >= 0) free(entry);
    return status;
}

ab_status ab_tensor_paths_add(const char *path, ab_tensor_paths *paths) {
    return ab_tensor_is_folder(path) ? add_folder(path, DEPTH, paths) : add(paths, path);
}

void ab_tensor_paths_free(ab_tensor_paths *paths) {
    for (int i = 0; i < paths->count; i++) free(paths->path[i]);
    free(paths->path);
    *paths = (ab_tensor_paths){0};
}
