#define _POSIX_C_SOURCE 200809L
#include "bench/run/self.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

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

/* Starts the child with no signal blocked. */
static ab_status start(const char *who, const char *what, char *const *argv, pid_t *child) {
    sigset_t none;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(child, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error ? ab_fail(AB_SYSTEM, "%s: cannot start %s: %s", who, what, strerror(error)) : AB_OK;
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
    pid_t child;
    int state = 0;
    bool interrupted = false;
    sigset_t before, waited = ending_signals();
    sigaddset(&waited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &waited, &before);
    ab_status outcome = start(who, what, argv, &child);
    if (outcome == AB_OK) outcome = wait_for(who, child, &state, &interrupted);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (outcome != AB_OK) return outcome;
    const int status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    if (interrupted || status == 128 + SIGINT || status == 128 + SIGTERM || status == 128 + SIGHUP)
        return ab_fail(AB_INTERRUPTED, "%s: interrupted", who);
    if (status <= accepted) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: %s failed with exit status %d (its message is above)", who, what, status);
}
