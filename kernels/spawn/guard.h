/* Between this process and a guarded program: ends all processes of the program when it or this process ends.
 */
#ifndef AB_SPAWN_GUARD_H
#define AB_SPAWN_GUARD_H

#include "kernels/core/compiler.h"

#include <sys/types.h>

AB_BEGIN_DECLS

/* Before the program is started: all processes that descend from this one become its children when their
 * parents end. */
void ab_guard_prepare(void);

/* Waits until `program`, a child, ends or the other end of the pipe `lifeline` is closed, ends all processes
 * that descend from this one, and ends as the program did: the same exit status or signal: does not return.
 * All signals must be blocked. Calls only async-signal-safe functions: it runs after fork. */
void ab_guard(pid_t program, int lifeline);

AB_END_DECLS

#endif
