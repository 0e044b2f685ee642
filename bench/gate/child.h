/* Runs another program and waits for it: its output, exit status, resource use, and the load of other
 * processes meanwhile. */
#ifndef AB_BENCH_GATE_CHILD_H
#define AB_BENCH_GATE_CHILD_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum { AB_CHILD_ERRORS = 800 };

typedef struct ab_child {
    int exit_status, signal; /* signal 0: it exited */
    double wall_s, cpu_s;    /* cpu: the program and the children it waited for */
    double
        other_load; /* processors kept busy by other processes meanwhile (hypervisor included); -1: unknown */
    char errors[AB_CHILD_ERRORS]; /* the end of its stderr, on one line */
} ab_child;

/* Runs argv with its standard output in the file `output` and its stderr in "<output>.err" (removed again).
 * Processes that it leaves behind are ended. `environment`: NULL for this process's. AB_SYSTEM if it could
 * not be started; a failed program is not an error of this function. */
AB_MUST_CHECK ab_status ab_child_run(char *const *argv, const char *output, char *const *environment,
                                     ab_child *child);

/* The same for a program that must succeed: otherwise AB_INTERNAL with `what`, how it ended and its stderr
 * (AB_USAGE if its exit status is that of a usage error, AB_INTERRUPTED if it was interrupted). */
AB_MUST_CHECK ab_status ab_child_require(const char *what, char *const *argv, const char *output,
                                         char *const *environment, ab_child *child);

AB_END_DECLS

#endif
