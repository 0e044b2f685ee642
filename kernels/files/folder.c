#define _POSIX_C_SOURCE 200809L
#include "kernels/files/folder.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

ab_status ab_folder_make(const char *folder) {
    char *path = ab_text_new("%s", folder);
    if (!path) return ab_fail(AB_NO_MEMORY, "%s: out of memory", folder);
    for (char *slash = path + 1; *path && (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0777);
    }
    struct stat about;
    bool made = mkdir(path, 0777) == 0;
    const int error = errno;
    made = made || (stat(path, &about) == 0 && S_ISDIR(about.st_mode));
    free(path);
    return made ? AB_OK : ab_fail(AB_OUTPUT, "%s: cannot create the folder: %s", folder, strerror(error));
}
