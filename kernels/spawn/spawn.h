/* Starts other programs and worker processes, the only place that does. Whatever is started ends when this
 * process ends, however this process ends. tests/lint/spawn.cmake checks that nothing else starts processes.
 */
#ifndef AB_SPAWN_SPAWN_H
#define AB_SPAWN_SPAWN_H

#include "kernels/core/compiler.h"
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

/* Environments of other programs. */

/* This process's environment without the variables whose names begin with `dropped` (NULL: none), and with
 * `added` ("NAME=VALUE", ends with NULL), which replace variables of the same name. Ends with NULL; NULL: out
 * of memory. The caller frees the array only: the texts are those of `added` and of this process. */
AB_MUST_CHECK char **ab_variables_new(const char *dropped, char *const *added);

/* Between this process and a guarded program: ends all processes of the program when it or this process ends.
 */

/* Before the program is started: all processes that descend from this one become its children when their
 * parents end. */
void ab_guard_prepare(void);

/* Waits until `program`, a child, ends or the other end of the pipe `lifeline` is closed, ends all processes
 * that descend from this one, and ends as the program did: the same exit status or signal: does not return.
 * All signals must be blocked. Calls only async-signal-safe functions: it runs after fork. */
void ab_guard(pid_t program, int lifeline);

AB_END_DECLS

#endif
