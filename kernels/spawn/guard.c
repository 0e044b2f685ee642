/* The guard: waits, then signals its descendants until there are none. It is a subreaper, so a process whose
 * parent has ended stays its descendant. Descendants are found by the parents in /proc/<pid>/stat. */
#define _GNU_SOURCE
#include "kernels/spawn/guard.h"

#include "kernels/core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
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
