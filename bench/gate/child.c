/* Spawns with output to files; resource use from wait4; load of other processes from /proc/stat. */
#define _GNU_SOURCE
#include "bench/gate/child.h"

#include "bench/timer/timer.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/spawn/spawn.h"
#include "reports/record/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Makes a file of our own: nothing is written through a link that is there already. */
static ab_status make_file(const char *path, int *file) {
    if (unlink(path) != 0 && errno != ENOENT)
        return ab_fail(AB_OUTPUT, "%s: cannot replace: %s", path, strerror(errno));
    *file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *file >= 0 ? AB_OK : ab_fail(AB_OUTPUT, "%s: cannot write: %s", path, strerror(errno));
}

static ab_status start(char *const *argv, const char *output, const char *errors, char *const *environment,
                       ab_spawned *child) {
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC), out = -1, err = -1;
    ab_status status = in < 0 ? ab_fail(AB_SYSTEM, "/dev/null: %s", strerror(errno)) : AB_OK;
    if (status == AB_OK) status = make_file(output, &out);
    if (status == AB_OK) status = make_file(errors, &err);
    const ab_spawn_request request = {
        .argv = argv, .environment = environment, .in = in, .out = out, .err = err, .guarded = true};
    if (status == AB_OK) status = ab_spawn(&request, child);
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    return status;
}

static ab_status wait_for(const char *name, pid_t pid, int *how, struct rusage *usage) {
    while (wait4(pid, how, 0, usage) < 0)
        if (errno != EINTR) return ab_fail(AB_SYSTEM, "cannot wait for %s: %s", name, strerror(errno));
    return AB_OK;
}

ab_status ab_child_run(char *const *argv, const char *output, char *const *environment, ab_child *child) {
    char errors[PATH_BYTES];
    ab_spawned spawned;
    int how = 0;
    struct rusage usage;
    memset(child, 0, sizeof *child);
    AB_TRY(ab_text_path("gate", errors, sizeof errors, "%s.err", output));
    double busy = busy_s();
    int64_t begun = ab_monotonic_ns();
    AB_TRY(start(argv, output, errors, environment, &spawned));
    AB_TRY(wait_for(argv[0], spawned.pid, &how, &usage));
    ab_spawn_done(&spawned);
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

ab_status ab_child_require(const char *what, char *const *argv, const char *output, char *const *environment,
                           ab_child *child) {
    char how[64];
    AB_TRY(ab_child_run(argv, output, environment, child));
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
