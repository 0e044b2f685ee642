/* --base-ref: another commit of this repository, built with the configuration of this program. The user's
 * work tree and index are not touched: the commit is checked out in a separate clone. */
#define _GNU_SOURCE
#include "bench/gate/child.h"
#include "bench/gate/measure.h"
#include "build_info.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static const char build_type[] = "-DCMAKE_BUILD_TYPE=" AB_BUILD_TYPE;

/* Reads the first line of a command's output. */
static ab_status first_output_line(const char *what, char *const *argv, const char *file, char *line,
                                   size_t size) {
    ab_child child;
    AB_TRY(ab_child_require(what, argv, file, NULL, &child));
    FILE *in = fopen(file, "r");
    line[0] = '\0';
    if (in && !fgets(line, (int)size, in)) line[0] = '\0';
    if (in) fclose(in);
    unlink(file);
    line[strcspn(line, "\n")] = '\0';
    return line[0] ? AB_OK : ab_fail(AB_INTERNAL, "%s: %s said nothing", what, argv[0]);
}

static ab_status call(const char *what, const char *const *argv, const char *log) {
    ab_child child;
    return ab_child_require(what, (char *const *)(uintptr_t)argv, log, NULL, &child);
}

static ab_status find_commit(const char *ref, const char *folder, char *top, char *sha) {
    char file[PATH_BYTES], commit[256];
    AB_TRY(ab_text_path("gate: --work", file, sizeof file, "%s/git.stdout", folder));
    if (!ab_text_fits(commit, sizeof commit, "%s^{commit}", ref))
        return ab_fail(AB_USAGE,
                       "--base-ref: expected a commit, tag or branch of at most %d characters, found %zu",
                       (int)sizeof commit - 10, strlen(ref));
    const char *show[] = {"git", "rev-parse", "--show-toplevel", NULL};
    const char *parse[] = {"git", "rev-parse", "--verify", "--end-of-options", commit, NULL};
    if (first_output_line("--base-ref", (char *const *)(uintptr_t)show, file, top, PATH_BYTES) != AB_OK)
        return ab_fail(AB_USAGE, "--base-ref: the working directory is in no git repository");
    if (first_output_line("--base-ref", (char *const *)(uintptr_t)parse, file, sha, 80) != AB_OK)
        return ab_fail(AB_USAGE, "--base-ref: expected a commit, tag or branch, found '%s'",
                       ab_text_brief(ref, 100));
    return AB_OK;
}

ab_status ab_gate_build_ref(const char *ref, const char *folder, char *program, size_t size) {
    char top[PATH_BYTES], sha[80], tree[PATH_BYTES], build[PATH_BYTES], log[PATH_BYTES];
    AB_TRY(find_commit(ref, folder, top, sha));
    AB_TRY(ab_text_path("gate: --work", tree, sizeof tree, "%s/%s", folder, sha));
    AB_TRY(ab_text_path("gate: --work", build, sizeof build, "%s/build", tree));
    AB_TRY(ab_text_path("gate: --work", log, sizeof log, "%s.log", tree));
    AB_TRY(ab_text_path("gate: --work", program, size, "%s/ampbench", build));
    if (access(program, X_OK) == 0) return AB_OK;
    ab_print(stderr, "ampbench: gate: building %s (%s); log in %s\n", ab_text_brief(sha, 12), ref, log);
    const char *clone[] = {"git", "clone", "--quiet", "--shared", "--no-checkout", top, tree, NULL};
    const char *checkout[] = {"git", "-C", tree, "checkout", "--quiet", "--detach", sha, NULL};
    const char *configure[] = {"cmake", "-S", tree, "-B", build, build_type, "-DAMPBENCH_TESTS=OFF", NULL};
    const char *compile[] = {"cmake", "--build", build, "--target", "ampbench", "--parallel", NULL};
    struct stat about;
    if (stat(tree, &about) != 0) AB_TRY(call("--base-ref: git clone", clone, log));
    AB_TRY(call("--base-ref: git checkout", checkout, log));
    AB_TRY(call("--base-ref: cmake", configure, log));
    AB_TRY(call("--base-ref: build", compile, log));
    if (access(program, X_OK) == 0) return AB_OK;
    return ab_fail(AB_INTERNAL, "--base-ref: the build made no %s", program);
}
