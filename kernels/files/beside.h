/* Names of files that stand beside another: its temporary file, its lock, its journal. */
#ifndef AB_FILES_BESIDE_H
#define AB_FILES_BESIDE_H

#include "kernels/core/compiler.h"

#include <stddef.h>

AB_BEGIN_DECLS

/* The longest name of a file that common file systems allow. */
enum { AB_BESIDE_NAME = 255 };

/* Length of the folder part of `path` with its slash; 0 if there is none. */
size_t ab_beside_folder(const char *path);

/* The path of a file in the folder of `path`: `before`, the name of `path`, `after`. The name is shortened
 * where the whole would be longer than file systems allow (AB_BESIDE_NAME bytes). Owned by the caller (free);
 * NULL: out of memory. */
AB_MUST_CHECK char *ab_beside(const char *path, const char *before, const char *after);

AB_END_DECLS

#endif
