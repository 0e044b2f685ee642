/* Reads a commit out of the user's repository. Nothing of that repository is written: no work tree, index,
 * HEAD, ref, setting or object; none of its hooks, filters or settings takes part. */
#ifndef AB_BENCH_GATE_GIT_H
#define AB_BENCH_GATE_GIT_H

#include "kernels/core/status.h"

#include <stddef.h>

AB_BEGIN_DECLS

enum { AB_GIT_PATH = 4096, AB_GIT_COMMIT = 80 };

typedef struct ab_git_commit {
    char id[AB_GIT_COMMIT];    /* 40 or 64 hexadecimal digits */
    char objects[AB_GIT_PATH]; /* absolute path of the repository's objects */
} ab_git_commit;

/* Finds the commit that `ref` names in the repository that the working directory is in. Variables of the
 * environment that name another one (GIT_DIR, ...) are ignored. `folder`: for files of this function.
 * AB_USAGE: there is no repository, or no such commit; with git's message. */
AB_MUST_CHECK ab_status ab_git_find(const char *ref, const char *folder, ab_git_commit *commit);

/* Makes the folder `tree`, which must not exist, a repository of its own with the commit's files and a
 * detached HEAD. Its objects are those of the user's repository, by reference. Files are as committed:
 * attributes of line ends and encodings count, filters and export attributes do not, submodules stay empty.
 * `log`: a file for git's output. */
AB_MUST_CHECK ab_status ab_git_extract(const ab_git_commit *commit, const char *tree, const char *log);

/* The environment without GIT_* variables, for programs that work in such a tree inside `folder` (an absolute
 * path): git finds no repository above it and takes no optional locks. Ends with NULL; NULL: out of memory.
 * The caller frees the array; `text[size]` holds a part of it. */
char **ab_git_variables(const char *folder, char *text, size_t size);

AB_END_DECLS

#endif
