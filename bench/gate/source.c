/* --base-ref: another commit of this repository, built with the configuration of this program in a folder of
 * its own, FOLDER/<commit id>. The folder is made under another name and renamed when it is complete; two
 * files inside its .git, written last, say that its source and its build are complete. The caller holds the
 * lock of FOLDER (kernels/files/lock.h). */
#define _GNU_SOURCE
#include "bench/gate/child.h"
#include "bench/gate/git.h"
#include "bench/gate/measure.h"
#include "build_info.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/files/outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = AB_GIT_PATH, OPEN_FOLDERS = 16 };

static const char build_type[] = "-DCMAKE_BUILD_TYPE=" AB_BUILD_TYPE;
static const char unfinished[] = ".unfinished";
static const char source_mark[] = "ampbench-source", build_mark[] = "ampbench-built";

typedef struct places {
    char folder[PATH_BYTES];    /* of --out, absolute */
    char tree[PATH_BYTES];      /* folder/<commit id> */
    char temporary[PATH_BYTES]; /* folder/<commit id>.unfinished */
    char log[PATH_BYTES];       /* as the user named the folder */
} places;

/* ---- removing -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

/* Removes a folder and all in it; follows no links. */
static ab_status remove_tree(const char *path) {
    if (nftw(path, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return AB_OK;
    return ab_fail(AB_OUTPUT, "gate: --out: cannot remove %s: %s", path, strerror(errno));
}

static bool is_unfinished(const char *name) {
    size_t digits = strspn(name, "0123456789abcdef");
    return (digits == 40 || digits == 64) && strcmp(name + digits, unfinished) == 0;
}

/* Removes what gates that were killed left. The lock is held, so nobody works there. */
static ab_status remove_unfinished(const char *folder) {
    DIR *listing = opendir(folder);
    if (!listing) return ab_fail(AB_OUTPUT, "gate: --out: cannot read %s: %s", folder, strerror(errno));
    ab_status status = AB_OK;
    for (struct dirent *entry; status == AB_OK && (entry = readdir(listing));) {
        char path[PATH_BYTES];
        if (!is_unfinished(entry->d_name)) continue;
        status = ab_text_path("gate: --out", path, sizeof path, "%s/%s", folder, entry->d_name);
        if (status == AB_OK) status = remove_tree(path);
    }
    closedir(listing);
    return status;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static ab_status write_mark(const char *tree, const char *mark, const char *text) {
    char path[PATH_BYTES];
    AB_TRY(ab_text_path("gate: --out", path, sizeof path, "%s/.git/%s", tree, mark));
    ab_outfile out;
    AB_TRY(ab_outfile_open(path, &out));
    fputs(text, out.stream);
    fputc('\n', out.stream);
    return ab_outfile_close(&out, AB_OK);
}

/* Whether the mark is there and says `text`. */
static bool has_mark(const char *tree, const char *mark, const char *text) {
    char path[PATH_BYTES], found[256], expected[256];
    if (!ab_text_fits(path, sizeof path, "%s/.git/%s", tree, mark) ||
        !ab_text_fits(expected, sizeof expected, "%s\n", text))
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t length = file < 0 ? -1 : read(file, found, sizeof found - 1);
    if (file >= 0) close(file);
    if (length < 0) return false;
    found[length] = '\0';
    return strcmp(found, expected) == 0;
}

static bool is_own_folder(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

/* ---- source and build ------------------------------------------------------------------------ */

/* Whether a gate of this user's made the tree; its build need not be complete. */
static bool is_ours(const char *tree, const char *id) {
    char git_dir[PATH_BYTES];
    return ab_text_fits(git_dir, sizeof git_dir, "%s/.git", tree) && is_own_folder(tree) &&
           is_own_folder(git_dir) && has_mark(tree, source_mark, id);
}

/* Makes way for a tree: an unfinished build is not continued, because a compiler that was killed leaves files
 * that look complete. What is not ours is not touched. */
static ab_status make_way(const places *at, const char *id) {
    struct stat about;
    if (lstat(at->tree, &about) != 0 && errno == ENOENT) return AB_OK;
    if (rmdir(at->tree) == 0) return AB_OK; /* it was empty */
    if (!is_ours(at->tree, id))
        return ab_fail(AB_USAGE,
                       "gate: --base-ref: %s is there and this command did not make it, or did not finish: "
                       "remove it or give another --out",
                       at->tree);
    if (rename(at->tree, at->temporary) != 0)
        return ab_fail(AB_OUTPUT, "gate: --out: cannot rename %s: %s", at->tree, strerror(errno));
    return remove_tree(at->temporary);
}

static ab_status make_source(const places *at, const ab_git_commit *commit) {
    char submodules[PATH_BYTES];
    AB_TRY(make_way(at, commit->id));
    AB_TRY(ab_git_extract(commit, at->temporary, at->log));
    AB_TRY(ab_text_path("gate: --out", submodules, sizeof submodules, "%s/.gitmodules", at->temporary));
    if (access(submodules, F_OK) == 0)
        fprintf(stderr, "ampbench: gate: --base-ref: the commit's submodules stay empty\n");
    AB_TRY(write_mark(at->temporary, source_mark, commit->id));
    if (rename(at->temporary, at->tree) == 0) return AB_OK;
    return ab_fail(AB_OUTPUT, "gate: --out: cannot rename %s: %s", at->temporary, strerror(errno));
}

static ab_status call(const char *what, const char *const *argv, char *const *environment, const char *log) {
    ab_child child;
    return ab_child_require(what, (char *const *)(uintptr_t)argv, log, environment, &child);
}

static ab_status build(const places *at) {
    char folder[PATH_BYTES], ceiling[PATH_BYTES + 32];
    AB_TRY(ab_text_path("gate: --out", folder, sizeof folder, "%s/build", at->tree));
    const char *configure[] = {"cmake", "-S", at->tree, "-B", folder, build_type, "-DAMPBENCH_TESTS=OFF",
                               NULL};
    const char *compile[] = {"cmake", "--build", folder, "--target", "ampbench", "--parallel", NULL};
    char **environment = ab_git_variables(at->folder, ceiling, sizeof ceiling);
    if (!environment) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    ab_status status = call("--base-ref: cmake", configure, environment, at->log);
    if (status == AB_OK) status = call("--base-ref: build", compile, environment, at->log);
    free(environment);
    return status;
}

static ab_status find_places(const char *folder, const char *id, places *at) {
    if (!realpath(folder, at->folder))
        return ab_fail(AB_OUTPUT, "gate: --out: %s: %s", folder, strerror(errno));
    AB_TRY(ab_text_path("gate: --out", at->tree, sizeof at->tree, "%s/%s", at->folder, id));
    AB_TRY(ab_text_path("gate: --out", at->log, sizeof at->log, "%s/%s.log", folder, id));
    return ab_text_path("gate: --out", at->temporary, sizeof at->temporary, "%s%s", at->tree, unfinished);
}

ab_status ab_gate_build_ref(const char *ref, const char *folder, char *program, size_t size) {
    ab_git_commit commit;
    places at;
    char built[160];
    AB_TRY(remove_unfinished(folder));
    AB_TRY(ab_git_find(ref, folder, &commit));
    AB_TRY(find_places(folder, commit.id, &at));
    AB_TRY(ab_text_path("gate: --out", program, size, "%s/%s/build/ampbench", folder, commit.id));
    ab_text_exact(built, sizeof built, "%s %s", commit.id, build_type);
    if (is_ours(at.tree, commit.id) && has_mark(at.tree, build_mark, built) && access(program, X_OK) == 0)
        return AB_OK;
    ab_print(stderr, "ampbench: gate: building %s (%s); log in %s\n", ab_text_brief(commit.id, 12), ref,
             at.log);
    AB_TRY(make_source(&at, &commit));
    AB_TRY(build(&at));
    if (access(program, X_OK) == 0) return write_mark(at.tree, build_mark, built);
    return ab_fail(AB_INTERNAL, "--base-ref: the build made no %s", program);
}
