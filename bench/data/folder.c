/* Lists a folder. */
#define _POSIX_C_SOURCE 200809L
#include "bench/data/folder.h"

#include "kernels/core/text_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void ab_names_free(ab_names *list) {
    for (int i = 0; i < list->count; i++) free(list->name[i]);
    free(list->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool ab_is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static ab_status add_name(ab_names *list, const char *name) {
    if ((list->count & (list->count - 1)) == 0) {
        char **grown = realloc(list->name, (size_t)(list->count ? 2 * list->count : 1) * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "--data: cannot list files");
        list->name = grown;
    }
    list->name[list->count] = strdup(name);
    return list->name[list->count++] ? AB_OK : ab_fail(AB_NO_MEMORY, "--data: cannot list files");
}

ab_status ab_folder_list(const char *path, bool folders, ab_names *list) {
    char inside[AB_FOLDER_PATH];
    DIR *folder = opendir(path);
    if (!folder) return ab_fail(AB_INPUT, "--data: cannot open %s: %s", path, strerror(errno));
    ab_status status = AB_OK;
    for (struct dirent *entry; status == AB_OK && (entry = readdir(folder));) {
        status = ab_text_path("--data", inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (status == AB_OK && entry->d_name[0] != '.' && ab_is_folder(inside) == folders)
            status = add_name(list, inside);
    }
    closedir(folder);
    if (status == AB_OK && list->count > 1)
        qsort(list->name, (size_t)list->count, sizeof *list->name, compare_names);
    return status;
}
