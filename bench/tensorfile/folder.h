/* A folder of tensor files as one set: shards, ranks, weights beside the optimizer's state. */
#ifndef AB_BENCH_TENSORFILE_FOLDER_H
#define AB_BENCH_TENSORFILE_FOLDER_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

typedef struct ab_tensor_paths {
    char **path; /* owned */
    int count;
} ab_tensor_paths;

/* Whether the path is a folder. */
bool ab_tensor_is_folder(const char *path);

/* Adds `path` itself, or, of a folder, the tensor files in it and in its folders, three levels deep, in the
 * order of their names, of torch.distributed.checkpoint its .metadata; other hidden files, indices, states of
 * random numbers and pickled arguments are left out. Finding none is no error. AB_INPUT if a folder cannot be
 * read or has too many. The caller frees *paths, also after a failure. */
AB_MUST_CHECK ab_status ab_tensor_paths_add(const char *path, ab_tensor_paths *paths);
void ab_tensor_paths_free(ab_tensor_paths *paths);

AB_END_DECLS

#endif
