/* Lists a folder, sorted: for sources with one file per sample or one folder per class. Opens no files. */
#ifndef AB_BENCH_DATA_FOLDER_H
#define AB_BENCH_DATA_FOLDER_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_FOLDER_PATH = 1024 }; /* paths are shorter */

typedef struct ab_names {
    char **name; /* owned; paths */
    int count;
} ab_names;

/* Whether `path` exists and is a folder. */
bool ab_is_folder(const char *path);

/* Lists the files (or folders) of a folder in the order of their names, without those that begin with a dot.
 * AB_INPUT if it cannot be opened. The caller frees `list`, also after an error. */
AB_MUST_CHECK ab_status ab_folder_list(const char *path, bool folders, ab_names *list);
void ab_names_free(ab_names *list);

AB_END_DECLS

#endif
