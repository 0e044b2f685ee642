/* fork, and in the child: end with the parent, signals, descriptors, folder, exec. A failed exec is reported
 * by a pipe that a successful one closes. */
#define _GNU_SOURCE

#include "kernels/spawn/spawn.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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

/* Programs start themselves again through /proc, which a bare root (chroot, container) may lack. */
static ab_status cannot_run(const ab_spawn_request *request, int error) {
    const char *name = ab_text_brief(request->argv[0], 200), *path = request->program;
    const bool through_proc = error == ENOENT && path && strncmp(path, "/proc/", 6) == 0;
    if (through_proc && access("/proc/self", F_OK) != 0)
        return ab_fail(AB_SYSTEM, "cannot run %s: /proc is not mounted (mount -t proc proc /proc)", name);
    return ab_fail(AB_SYSTEM, "cannot run %s: %s", name, strerror(error));
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
    return error == 0 ? AB_OK : cannot_run(request, error);
}

void ab_spawn_done(ab_spawned *spawned) {
    if (spawned->lifeline >= 0) close(spawned->lifeline);
    spawned->lifeline = -1;
}

/* Copies the pointers of `environ`. */

extern char **environ;

static size_t count(char *const *list) {
    size_t n = 0;
    while (list[n]) n++;
    return n;
}

static bool is_replaced(const char *variable, char *const *added) {
    const size_t name = strcspn(variable, "=");
    for (; *added; added++)
        if (strncmp(variable, *added, name) == 0 && (*added)[name] == '=') return true;
    return false;
}

char **ab_variables_new(const char *dropped, char *const *added) {
    char **copy = calloc(count(environ) + count(added) + 1, sizeof *copy);
    size_t kept = 0;
    for (size_t i = 0; copy && environ[i]; i++) {
        if (dropped && strncmp(environ[i], dropped, strlen(dropped)) == 0) continue;
        if (!is_replaced(environ[i], added)) copy[kept++] = environ[i];
    }
    if (copy) memcpy(copy + kept, added, count(added) * sizeof *copy);
    return copy;
}

/* The guard: waits, then signals its descendants until there are none. It is a subreaper, so a process whose
 * parent has ended stays its descendant. Descendants are found by the parents in /proc/<pid>/stat. */

enum {
    TICK_MS = 20,
    GRACE_MS = 2000, /* between SIGTERM and SIGKILL */
    LAST_MS = 7000,  /* gives up on processes that cannot be killed, e.g. those of another user */
    DEEPEST = 4096,
    ENTRIES_BYTES = 1 << 14
};

typedef struct guard {
    pid_t program;
    int state;    /* how the program ended, as of waitpid */
    int children; /* signalfd of SIGCHLD; -1: none, then it looks every TICK_MS */
} guard;

/* ---- descendants ----------------------------------------------------------------------------- */

/* The parent of a process, 0 if the process has ended. Format: proc(5), "pid (name) state parent ...", where
 * the name may hold anything. */
static pid_t parent_of(pid_t pid) {
    char path[32], text[512];
    ab_text_exact(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = '\0';
    const char *after_name = strrchr(text, ')');
    return after_name && strlen(after_name) > 4 ? (pid_t)strtol(after_name + 4, NULL, 10) : 0;
}

static bool descends_from(pid_t pid, pid_t ancestor) {
    for (int depth = 0; pid > 1 && depth < DEEPEST; depth++) {
        pid = parent_of(pid);
        if (pid == ancestor) return true;
    }
    return false;
}

/* What SYS_getdents64 writes; opendir and readdir allocate, which is not allowed after fork. */
typedef struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short bytes;
    unsigned char type;
    char name[];
} entry;

static void signal_descendants(int number) {
    _Alignas(entry) char entries[ENTRIES_BYTES];
    const pid_t self = getpid();
    int folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    for (long bytes; (bytes = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < bytes;) {
            const entry *found = (const entry *)(const void *)(entries + at);
            pid_t pid = (pid_t)strtol(found->name, NULL, 10); /* 0: not a process */
            if (pid > 1 && pid != self && descends_from(pid, self)) kill(pid, number);
            at += found->bytes;
        }
    }
    close(folder);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Waits for all children that have ended. Returns false if none are left; *program_ended is set if the
 * program was among them. */
static bool reap(guard *g, bool *program_ended) {
    for (int state;;) {
        pid_t ended = waitpid(-1, &state, WNOHANG);
        if (ended == 0) return true;
        if (ended < 0 && errno == EINTR) continue;
        if (ended < 0) return false;
        if (ended != g->program) continue;
        g->state = state;
        *program_ended = true;
    }
}

/* Waits for a child to end, for `lifeline` (-1: none) to close, or for `timeout_ms` (-1: none). Returns
 * whether the lifeline was closed. */
static bool wait_for_event(const guard *g, int lifeline, int timeout_ms) {
    struct pollfd events[] = {{.fd = g->children, .events = POLLIN}, {.fd = lifeline, .events = POLLIN}};
    struct signalfd_siginfo ignored;
    if (g->children < 0) timeout_ms = TICK_MS;
    if (poll(events, 2, timeout_ms) <= 0) return false;
    while (g->children >= 0 && read(g->children, &ignored, sizeof ignored) > 0) continue;
    return (events[1].revents & (POLLHUP | POLLERR | POLLIN)) != 0;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void end_descendants(guard *g) {
    const int64_t begun = now_ms();
    bool program_ended, asked = false;
    while (reap(g, &program_ended) && now_ms() - begun < LAST_MS) {
        const bool late = now_ms() - begun >= GRACE_MS;
        if (!asked || late) signal_descendants(late ? SIGKILL : SIGTERM);
        if (!asked) signal_descendants(SIGCONT); /* a stopped process takes no signal but SIGKILL */
        asked = true;
        wait_for_event(g, -1, TICK_MS);
    }
}

/* ---- the guard ------------------------------------------------------------------------------- */

_Noreturn static void end_like(int state) {
    if (WIFSIGNALED(state)) {
        const struct rlimit none = {0, 0}; /* the program's own core file is enough */
        sigset_t all;
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(state), SIG_DFL);
        sigemptyset(&all);
        sigaddset(&all, WTERMSIG(state));
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        kill(getpid(), WTERMSIG(state));
    }
    _exit(WIFEXITED(state) ? WEXITSTATUS(state) : 1);
}

void ab_guard_prepare(void) {
    prctl(PR_SET_NAME, "ampbench-guard");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL);
}

void ab_guard(pid_t program, int lifeline) {
    sigset_t child_ends;
    sigemptyset(&child_ends);
    sigaddset(&child_ends, SIGCHLD);
    guard g = {.program = program, .children = signalfd(-1, &child_ends, SFD_CLOEXEC | SFD_NONBLOCK)};
    bool ended = false, closed = false;
    for (;;) {
        reap(&g, &ended);
        if (ended || closed) break;
        closed = wait_for_event(&g, lifeline, -1);
    }
    end_descendants(&g);
    end_like(g.state);
}
