#define _POSIX_C_SOURCE 200809L
#include "bench/run/self.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

ab_status ab_run_self(const char *who, const char *what, char *const *argv, int accepted) {
    pid_t child;
    int state = 0;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) return ab_fail(AB_SYSTEM, "%s: cannot start %s: %s", who, what, strerror(error));
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR) return ab_fail(AB_SYSTEM, "%s: waitpid: %s", who, strerror(errno));
    const int status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    if (status <= accepted) return AB_OK;
    if (status == 128 + SIGINT || status == 128 + SIGTERM)
        return ab_fail(AB_INTERRUPTED, "%s: interrupted", who);
    return ab_fail(AB_CONFIG, "%s: %s failed with exit status %d (its message is above)", who, what, status);
}
