#include "kernels/files/beside.h"

#include "kernels/core/text.h"

#include <string.h>

size_t ab_beside_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

char *ab_beside(const char *path, const char *before, const char *after) {
    const size_t folder = ab_beside_folder(path), length = strlen(path + folder);
    const size_t added = strlen(before) + strlen(after);
    const size_t room = added < AB_BESIDE_NAME ? AB_BESIDE_NAME - added : 0,
                 kept = length < room ? length : room;
    return ab_text_new("%.*s%s%.*s%s", (int)folder, path, before, (int)kept, path + folder, after);
}
