/* fork, and in the child: end with the parent, signals, descriptors, folder, exec. A failed exec is reported
 * by a pipe that a successful one closes. */
#define _GNU_SOURCE
#include "kernels/spawn/spawn.h"

#include "kernels/core/text.h"
#include "kernels/spawn/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { CANNOT_RUN = 127, FIRST_FREE = 3 };

typedef struct pipes {
    int report[2];   /* the child writes errno if it cannot run the program */
    int lifeline[2]; /* the guard reads the end of this process; -1 without a guard */
} pipes;

/* ---- in the child: async-signal-safe calls only ---------------------------------------------- */

_Noreturn static void give_up(int report) {
    const int error = errno;
    while (write(report, &error, sizeof error) < 0 && errno == EINTR) continue;
    _exit(CANNOT_RUN);
}

/* The kernel kills this process when its parent ends. That does not cover a parent that ended before the
 * call; in that case this process already has another parent. */
static void end_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(CANNOT_RUN);
}

/* No handler of the parent's runs here; what is ignored stays so, unless the request says otherwise. Blocked
 * signals are delivered last. */
static void reset_signals(bool default_signals) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) != 0) continue;
        bool named = number == SIGINT || number == SIGTERM || number == SIGPIPE;
        if (now.sa_handler == SIG_IGN && number != SIGCHLD && !(default_signals && named)) continue;
        if (now.sa_handler != SIG_DFL) signal(number, SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A copy of a descriptor above those of the standard streams: one of them may be closed here, and then the
 * descriptors of the request and of the pipes may be where a stream goes. */
static int above_streams(int descriptor) {
    return descriptor < 0 || descriptor >= FIRST_FREE ? descriptor
                                                      : fcntl(descriptor, F_DUPFD_CLOEXEC, FIRST_FREE);
}

static bool place_streams(const ab_spawn_request *request) {
    const int wanted[] = {request->in, request->out, request->err};
    int from[3];
    for (int i = 0; i < 3; i++) {
        from[i] = above_streams(wanted[i]);
        if (wanted[i] >= 0 && from[i] < 0) return false;
    }
    for (int i = 0; i < 3; i++)
        if (from[i] >= 0 && dup2(from[i], i) < 0) return false;
    return true;
}

_Noreturn static void become(const ab_spawn_request *request, pid_t parent, int report) {
    const char *program = request->program ? request->program : request->argv[0];
    end_with(parent);
    if (!place_streams(request)) give_up(report);
    if (request->folder && chdir(request->folder) != 0) {
        if (errno == ENOENT) errno = ENOTDIR; /* it is not the program that is missing */
        give_up(report);
    }
    reset_signals(request->default_signals);
    execvpe(program, request->argv, request->environment ? request->environment : environ);
    give_up(report);
}

_Noreturn static void become_guard(const ab_spawn_request *request, const pipes *p) {
    const pid_t self = getpid();
    close(p->lifeline[1]);
    ab_guard_prepare();
    pid_t program = fork();
    if (program < 0) give_up(p->report[1]);
    if (program == 0) become(request, self, p->report[1]);
    close(p->report[1]);
    ab_guard(program, p->lifeline[0]);
    _exit(CANNOT_RUN); /* not reached */
}

/* ---- in the parent --------------------------------------------------------------------------- */

static void close_all(pipes *p) {
    int *const ends[] = {&p->report[0], &p->report[1], &p->lifeline[0], &p->lifeline[1]};
    for (size_t i = 0; i < AB_COUNT_OF(ends); i++) {
        if (*ends[i] >= 0) close(*ends[i]);
        *ends[i] = -1;
    }
}

/* A pipe both of whose ends are above the standard streams. */
static bool open_pipe(int ends[2]) {
    int made[2];
    if (pipe2(made, O_CLOEXEC) != 0) return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = above_streams(made[i]);
        if (ends[i] != made[i]) close(made[i]);
    }
    return ends[0] >= 0 && ends[1] >= 0;
}

static ab_status open_pipes(bool guarded, pipes *p) {
    *p = (pipes){{-1, -1}, {-1, -1}};
    if (open_pipe(p->report) && (!guarded || open_pipe(p->lifeline))) return AB_OK;
    ab_status status = ab_fail(AB_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    close_all(p);
    return status;
}

/* A parent of this process may have left SIGCHLD ignored; then nothing could be waited for. */
static void heed_children(void) {
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler == SIG_IGN) signal(SIGCHLD, SIG_DFL);
}

/* Forks with all signals blocked, so that none is taken by a handler of the parent's in the child. */
static pid_t fork_child(const ab_spawn_request *request, const pipes *p) {
    sigset_t all, before;
    const pid_t self = getpid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0 && request->guarded) become_guard(request, p);
    if (pid == 0) become(request, self, p->report[1]);
    const int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return pid;
}

/* errno of a program that could not be run, after it was waited for; 0: it runs. */
static int read_report(int report, pid_t pid) {
    int error = 0;
    ssize_t got;
    while ((got = read(report, &error, sizeof error)) < 0 && errno == EINTR) continue;
    if (got != (ssize_t)sizeof error) return 0;
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    return error;
}

ab_status ab_spawn(const ab_spawn_request *request, ab_spawned *spawned) {
    pipes p;
    *spawned = (ab_spawned){.pid = -1, .lifeline = -1};
    if (syscall(SYS_gettid) != getpid())
        return ab_fail(AB_INTERNAL, "cannot run %s: not the main thread", request->argv[0]);
    AB_TRY(open_pipes(request->guarded, &p));
    heed_children();
    pid_t pid = fork_child(request, &p);
    int error = pid < 0 ? errno : 0;
    close(p.report[1]);
    p.report[1] = -1;
    if (pid > 0) error = read_report(p.report[0], pid);
    if (error == 0) {
        *spawned = (ab_spawned){.pid = pid, .lifeline = p.lifeline[1]};
        p.lifeline[1] = -1;
    }
    close_all(&p);
    spawned->missing = error == ENOENT;
    return error == 0 ? AB_OK
                      : ab_fail(AB_SYSTEM, "cannot run %s: %s", ab_text_brief(request->argv[0], 200),
                                strerror(error));
}

void ab_spawn_done(ab_spawned *spawned) {
    if (spawned->lifeline >= 0) close(spawned->lifeline);
    spawned->lifeline = -1;
}
