/* Starts other programs and worker processes, the only place that does. Whatever is started ends when this
 * process ends, however this process ends. tests/lint/spawn.cmake checks that nothing else starts processes.
 */
#ifndef AB_SPAWN_SPAWN_H
#define AB_SPAWN_SPAWN_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <sys/types.h>

AB_BEGIN_DECLS

enum { AB_SPAWN_INHERIT = -1 };

typedef struct ab_spawn_request {
    const char *program;      /* a path, or a name that is looked up in PATH; NULL: argv[0] */
    char *const *argv;        /* ends with NULL */
    char *const *environment; /* ends with NULL; NULL: this process's */
    const char *folder;       /* working directory; NULL: this process's */
    int in, out, err;         /* descriptors, closed by the caller; AB_SPAWN_INHERIT: this process's own */
    bool default_signals; /* SIGINT, SIGTERM and SIGPIPE act by default even where they are ignored here */
    bool guarded;         /* for programs that may start processes of their own: see ab_spawn */
} ab_spawn_request;

typedef struct ab_spawned {
    pid_t pid;    /* for waitpid; its exit status, signal and resource use are the program's */
    int lifeline; /* open while this process lives */
    bool missing; /* out, on failure: the program does not exist */
} ab_spawned;

/* Starts a program with no signal blocked. Must be called by the main thread: the kernel ends a child with
 * the thread that started it. The program gets SIGKILL when this process ends.
 * A guarded program is started by a process in between, which ends the program's own processes too, at any
 * depth and even if they are in sessions of their own, when the program or this process has ended: SIGTERM
 * first, SIGKILL after two seconds. That process waits for them before it ends, and until then holds the
 * files that are open here.
 * AB_SYSTEM if the program cannot be started. After a successful call, wait for spawned->pid, then call
 * ab_spawn_done. */
AB_MUST_CHECK ab_status ab_spawn(const ab_spawn_request *request, ab_spawned *spawned);
void ab_spawn_done(ab_spawned *spawned);

AB_END_DECLS

#endif
