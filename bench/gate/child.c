/* Spawns with output to files; resource use from wait4; load of other processes from /proc/stat. */
#define _GNU_SOURCE
#include "bench/gate/child.h"

#include "bench/run/timer.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "reports/record/text.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PATH_BYTES = 4096 };

/* Busy processor seconds of this machine, steal time included; -1 if /proc does not report them. */
static double busy_s(void) {
    long long user, nice, system, idle, wait, irq, softirq, steal = 0;
    FILE *file = fopen("/proc/stat", "r");
    int got = file ? fscanf(file, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle,
                            &wait, &irq, &softirq, &steal)
                   : 0;
    if (file) fclose(file);
    if (got < 8) return -1;
    return (double)(user + nice + system + irq + softirq + steal) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Reads the last bytes of a file as one printable line. */
static void read_tail(const char *path, char errors[AB_CHILD_ERRORS]) {
    char raw[AB_CHILD_ERRORS];
    FILE *file = fopen(path, "rb");
    errors[0] = '\0';
    if (!file) return;
    if (fseek(file, -(long)(sizeof raw - 1), SEEK_END) != 0) rewind(file);
    size_t n = fread(raw, 1, sizeof raw - 1, file);
    fclose(file);
    while (n > 0 && (raw[n - 1] == '\n' || raw[n - 1] == ' ')) n--;
    raw[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (raw[i] == '\n' || raw[i] == '\0') raw[i] = ' ';
    ab_text_clean(errors, AB_CHILD_ERRORS, raw);
}

/* The environment plus one variable; the caller owns only the array. */
static char **environment_with(const char *variable) {
    size_t n = 0, kept = 0, name = variable ? strcspn(variable, "=") + 1 : 0;
    while (environ[n]) n++;
    char **copy = calloc(n + 2, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!variable || strncmp(environ[i], variable, name) != 0) copy[kept++] = environ[i];
    if (copy && variable) copy[kept] = (char *)(uintptr_t)variable;
    return copy;
}

static ab_status start(char *const *argv, const char *output, const char *errors, const char *variable,
                       pid_t *pid) {
    posix_spawn_file_actions_t actions;
    char **environment = environment_with(variable);
    if (!environment) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int error = posix_spawnp(pid, argv[0], &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return error == 0 ? AB_OK : ab_fail(AB_SYSTEM, "cannot run %s: %s", argv[0], strerror(error));
}

ab_status ab_child_run(char *const *argv, const char *output, const char *variable, ab_child *child) {
    char errors[PATH_BYTES];
    pid_t pid = -1;
    int how = 0;
    struct rusage usage;
    memset(child, 0, sizeof *child);
    AB_TRY(ab_text_path("gate", errors, sizeof errors, "%s.err", output));
    double busy = busy_s();
    int64_t begun = ab_monotonic_ns();
    AB_TRY(start(argv, output, errors, variable, &pid));
    while (wait4(pid, &how, 0, &usage) < 0)
        if (errno != EINTR) return ab_fail(AB_SYSTEM, "cannot wait for %s: %s", argv[0], strerror(errno));
    child->wall_s = 1e-9 * (double)(ab_monotonic_ns() - begun);
    child->cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    double others = busy_s() - busy - child->cpu_s;
    child->other_load = busy < 0 || child->wall_s <= 0 ? -1 : others > 0 ? others / child->wall_s : 0;
    if (WIFSIGNALED(how))
        child->signal = WTERMSIG(how);
    else
        child->exit_status = WEXITSTATUS(how);
    read_tail(errors, child->errors);
    unlink(errors);
    return AB_OK;
}

ab_status ab_child_require(const char *what, char *const *argv, const char *output, const char *variable,
                           ab_child *child) {
    char how[64];
    AB_TRY(ab_child_run(argv, output, variable, child));
    if (child->signal == 0 && child->exit_status == 0) return AB_OK;
    if (child->signal != 0)
        ab_text_show(how, sizeof how, "killed by signal %d (%s)", child->signal, strsignal(child->signal));
    else
        ab_text_show(how, sizeof how, "ended with status %d", child->exit_status);
    ab_status status = child->exit_status == 130 ? AB_INTERRUPTED
                       : child->exit_status == 2 ? AB_USAGE
                                                 : AB_INTERNAL;
    return ab_fail(status, "%s: %s %s; its stderr: %s", what, argv[0], how,
                   child->errors[0] ? child->errors : "empty");
}
