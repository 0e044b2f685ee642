#define _POSIX_C_SOURCE 200809L
#include "bench/run/self.h"

#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/spawn/spawn.h"
#include "reports/record/result.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The signals that end a program: blocked while the child runs, and forwarded to it. */
static sigset_t ending_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

static sigset_t before_holding;

void ab_run_hold_signals(void) {
    const sigset_t set = ending_signals();
    sigprocmask(SIG_BLOCK, &set, &before_holding);
}

void ab_run_release_signals(void) { sigprocmask(SIG_SETMASK, &before_holding, NULL); }

static ab_status start(const char *who, const char *what, char *const *argv, ab_spawned *child) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return ab_fail(AB_SYSTEM, "%s: /dev/null: %s", who, strerror(errno));
    const ab_spawn_request request = {.program = "/proc/self/exe",
                                      .argv = argv,
                                      .in = AB_SPAWN_INHERIT,
                                      .out = nowhere,
                                      .err = AB_SPAWN_INHERIT};
    ab_status status = ab_spawn(&request, child);
    close(nowhere);
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "%s: %s", who, what);
}

/* Waits for the child; a signal that would end this program is forwarded to the child instead. SIGCHLD and
 * these signals must be blocked. */
static ab_status wait_for(const char *who, pid_t child, int *state, bool *interrupted) {
    sigset_t set = ending_signals();
    sigaddset(&set, SIGCHLD);
    for (;;) {
        const pid_t ended = waitpid(child, state, WNOHANG);
        if (ended == child) return AB_OK;
        if (ended < 0 && errno != EINTR) return ab_fail(AB_SYSTEM, "%s: waitpid: %s", who, strerror(errno));
        const int number = sigwaitinfo(&set, NULL);
        if (number < 0 || number == SIGCHLD) continue;
        *interrupted = true;
        kill(child, number);
    }
}

ab_status ab_run_self(const char *who, const char *what, char *const *argv, int accepted) {
    ab_spawned child = {.pid = -1, .lifeline = -1};
    int state = 0;
    bool interrupted = false;
    sigset_t before, waited = ending_signals();
    sigaddset(&waited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &waited, &before);
    ab_status outcome = start(who, what, argv, &child);
    if (outcome == AB_OK) outcome = wait_for(who, child.pid, &state, &interrupted);
    ab_spawn_done(&child);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (outcome != AB_OK) return outcome;
    const int status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    if (interrupted || status == 128 + SIGINT || status == 128 + SIGTERM || status == 128 + SIGHUP)
        return ab_fail(AB_INTERRUPTED, "%s: interrupted", who);
    if (status <= accepted) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: %s failed with exit status %d (its message is above)", who, what, status);
}

/* ---- in a folder of its own ------------------------------------------------------------------ */

enum { PATH_BYTES = 4096 };

static ab_status make_folder(const char *who, char folder[PATH_BYTES]) {
    const char *base = getenv("TMPDIR");
    char what[64];
    ab_text_show(what, sizeof what, "%s: TMPDIR", who);
    AB_TRY(ab_text_path(what, folder, PATH_BYTES, "%s/ampbench-run.XXXXXX", base && base[0] ? base : "/tmp"));
    if (mkdtemp(folder)) return AB_OK;
    return ab_fail(AB_OUTPUT, "%s: cannot make a folder in %s: %s", who, base && base[0] ? base : "/tmp",
                   strerror(errno));
}

/* Removes the folder with all files of a run, including a partly written document. */
static void remove_folder(const char *folder) {
    char path[PATH_BYTES + 280];
    DIR *listing = opendir(folder);
    for (const struct dirent *entry; listing && (entry = readdir(listing));)
        if (ab_text_fits(path, sizeof path, "%s/%s", folder, entry->d_name)) unlink(path);
    if (listing) closedir(listing);
    rmdir(folder);
}

static ab_status run_into(const char *who, const char *what, char *const *argv, int accepted, char *path) {
    static char out[] = "--out";
    int n = 0;
    while (argv[n]) n++;
    char **words = calloc((size_t)n + 3, sizeof *words);
    if (!words) return ab_fail(AB_NO_MEMORY, "%s: out of memory", who);
    memcpy(words, argv, (size_t)n * sizeof *words);
    words[n] = out;
    words[n + 1] = path;
    ab_status status = ab_run_self(who, what, words, accepted);
    free(words);
    return status;
}

static ab_status load_summarised(const char *path, cJSON **document) {
    AB_TRY(ab_result_load(path, document));
    ab_status status = ab_result_summarise(*document);
    if (status == AB_OK) return AB_OK;
    cJSON_Delete(*document);
    *document = NULL;
    return status;
}

ab_status ab_run_self_record(const char *who, const char *what, char *const *argv, int accepted,
                             cJSON **document) {
    char folder[PATH_BYTES], path[PATH_BYTES + 16];
    ab_run_hold_signals();
    ab_status status = make_folder(who, folder);
    if (status == AB_OK) {
        ab_text_exact(path, sizeof path, "%s/result.json", folder);
        status = run_into(who, what, argv, accepted, path);
        if (status == AB_OK) status = load_summarised(path, document);
        remove_folder(folder);
    }
    ab_run_release_signals();
    return status;
}
