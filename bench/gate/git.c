/* git as a child. Of the user's repository only two questions are asked (rev-parse); the files come from a
 * repository of our own that borrows its objects, so no hook or setting of the user's applies to them. */
#define _GNU_SOURCE
#include "bench/gate/git.h"

#include "bench/gate/child.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/files/outfile.h"
#include "kernels/spawn/spawn.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_WORDS = 40 };

/* Settings for every call: none of these run, whatever is configured. */
static const char *const settings[] = {"core.hooksPath=/dev/null",
                                       "core.fsmonitor=false",
                                       "protocol.allow=never",
                                       "submodule.recurse=false",
                                       "gc.auto=0",
                                       "maintenance.auto=false",
                                       "init.defaultBranch=main",
                                       "advice.detachedHead=false"};

/* Files of settings that are read in the user's repository but not in ours. The first needs git 2.32; HOME
 * does the same for older ones. */
static const char *const no_settings[] = {"GIT_CONFIG_GLOBAL=/dev/null",
                                          "GIT_CONFIG_SYSTEM=/dev/null",
                                          "GIT_CONFIG_NOSYSTEM=1",
                                          "GIT_ATTR_NOSYSTEM=1",
                                          "HOME=/dev/null",
                                          "XDG_CONFIG_HOME=/dev/null",
                                          "GIT_NO_LAZY_FETCH=1",
                                          "GIT_OPTIONAL_LOCKS=0",
                                          NULL};
static const char *const user_settings[] = {"GIT_NO_LAZY_FETCH=1", "GIT_OPTIONAL_LOCKS=0", NULL};

/* Runs git with `words` (ends with NULL) and no GIT_* variable of the user's. */
static ab_status git(const char *what, const char *const *words, const char *const *variables,
                     const char *output) {
    const char *argv[MOST_WORDS] = {"git"};
    int n = 1;
    for (size_t i = 0; i < AB_COUNT_OF(settings); i++) {
        argv[n++] = "-c";
        argv[n++] = settings[i];
    }
    for (int i = 0; words[i] && n < MOST_WORDS - 1; i++) argv[n++] = words[i];
    char **environment = ab_variables_new("GIT_", (char *const *)(uintptr_t)variables);
    if (!environment) return ab_fail(AB_NO_MEMORY, "%s: out of memory", what);
    ab_child child;
    ab_status status = ab_child_require(what, (char *const *)(uintptr_t)argv, output, environment, &child);
    free(environment);
    return status;
}

/* ---- the user's repository ------------------------------------------------------------------- */

/* Asks git for one line. */
static ab_status ask(const char *const *words, const char *folder, char *line, size_t size) {
    char file[AB_GIT_PATH];
    AB_TRY(ab_text_path("gate: --out", file, sizeof file, "%s/git.stdout", folder));
    ab_status status = git("--base-ref", words, user_settings, file);
    FILE *in = status == AB_OK ? fopen(file, "r") : NULL;
    size_t length = in ? fread(line, 1, size - 1, in) : 0;
    if (in) fclose(in);
    unlink(file);
    if (status != AB_OK) return status;
    line[length] = '\0';
    if (length < 2 || strchr(line, '\n') != line + length - 1)
        return ab_fail(AB_INTERNAL, "--base-ref: expected one line of git %s, found '%s'", words[0],
                       ab_text_brief(line, 100));
    line[length - 1] = '\0';
    return AB_OK;
}

/* A usage error with what git said, or the failure itself if git could not be asked. */
static ab_status refuse(ab_status status, const char *found) {
    if (status != AB_INTERNAL) return status;
    char said[700];
    ab_text_show(said, sizeof said, "%s", ab_error_message());
    return ab_fail(AB_USAGE, "--base-ref: %s (%s)", found, said);
}

static ab_status find_objects(const char *folder, char *objects) {
    static const char *const words[] = {"rev-parse", "--git-path", "objects", NULL};
    char path[AB_GIT_PATH];
    ab_status status = ask(words, folder, path, sizeof path);
    if (status != AB_OK) return refuse(status, "the working directory is in no git repository");
    if (realpath(path, objects)) return AB_OK;
    return ab_fail(AB_USAGE, "--base-ref: the repository has no objects: %s: %s", path, strerror(errno));
}

ab_status ab_git_find(const char *ref, const char *folder, ab_git_commit *commit) {
    char wanted[256], found[160];
    const char *words[] = {"rev-parse", "--verify", "--end-of-options", wanted, NULL};
    if (!ab_text_fits(wanted, sizeof wanted, "%s^{commit}", ref))
        return ab_fail(AB_USAGE,
                       "--base-ref: expected a commit, tag or branch of at most %d characters, found %zu",
                       (int)sizeof wanted - 10, strlen(ref));
    AB_TRY(find_objects(folder, commit->objects));
    ab_text_show(found, sizeof found, "expected a commit, tag or branch, found '%s'",
                 ab_text_brief(ref, 100));
    ab_status status = ask(words, folder, commit->id, sizeof commit->id);
    if (status != AB_OK) return refuse(status, found);
    size_t digits = strspn(commit->id, "0123456789abcdef");
    if (commit->id[digits] == '\0' && (digits == 40 || digits == 64)) return AB_OK;
    return ab_fail(AB_INTERNAL, "--base-ref: git rev-parse: expected a commit id, found '%s'", commit->id);
}

/* ---- our own --------------------------------------------------------------------------------- */

static ab_status borrow_objects(const char *tree, const char *objects) {
    char path[AB_GIT_PATH];
    AB_TRY(ab_text_path("gate: --out", path, sizeof path, "%s/.git/objects/info/alternates", tree));
    ab_outfile out;
    AB_TRY(ab_outfile_open(path, &out));
    fputs(objects, out.stream); /* as it is: git reads it */
    fputc('\n', out.stream);
    return ab_outfile_close(&out, AB_OK);
}

ab_status ab_git_extract(const ab_git_commit *commit, const char *tree, const char *log) {
    const bool long_id = strlen(commit->id) > 40;
    char git_dir[AB_GIT_PATH + 16], work_tree[AB_GIT_PATH + 16];
    ab_text_exact(git_dir, sizeof git_dir, "--git-dir=%s/.git", tree);
    ab_text_exact(work_tree, sizeof work_tree, "--work-tree=%s", tree);
    const char *init[] = {"init", "--quiet", "--template=", tree, NULL, NULL};
    const char *checkout[] = {git_dir,   work_tree,  "checkout", "--quiet",
                              "--force", "--detach", commit->id, NULL};
    if (long_id) init[3] = "--object-format=sha256", init[4] = tree;
    AB_TRY(git("--base-ref: git init", init, no_settings, log));
    AB_TRY(borrow_objects(tree, commit->objects));
    return git("--base-ref: git checkout", checkout, no_settings, log);
}

char **ab_git_variables(const char *folder, char *text, size_t size) {
    static char no_locks[] = "GIT_OPTIONAL_LOCKS=0";
    char *const added[] = {text, no_locks, NULL};
    ab_text_exact(text, size, "GIT_CEILING_DIRECTORIES=%s", folder);
    return ab_variables_new("GIT_", added);
}
