/* A foreign program run to its end: where its output goes, how it ended, what it used, what others used
 * meanwhile. */
#ifndef AB_BENCH_GATE_CHILD_H
#define AB_BENCH_GATE_CHILD_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum { AB_CHILD_ERRORS = 800 };

typedef struct ab_child {
    int exit_status, signal; /* signal 0: it exited */
    double wall_s, cpu_s;    /* cpu: the program and what it waited for */
    double other_load;       /* processors kept busy by others meanwhile (the hypervisor too); -1: unknown */
    char errors[AB_CHILD_ERRORS]; /* the end of what it wrote to stderr, on one line */
} ab_child;

/* Runs argv with its standard output in the file `output` and its stderr in "<output>.err" (removed again).
 * `variable`: NULL or "NAME=VALUE" for its environment. AB_SYSTEM if it could not be started; that it failed
 * is no failure of this call. */
AB_MUST_CHECK ab_status ab_child_run(char *const *argv, const char *output, const char *variable,
                                     ab_child *child);

/* The same for a program that must succeed: AB_INTERNAL with `what`, how it ended and its stderr otherwise
 * (AB_USAGE where it says that it was misused, AB_INTERRUPTED where it was). */
AB_MUST_CHECK ab_status ab_child_require(const char *what, char *const *argv, const char *output,
                                         const char *variable, ab_child *child);

AB_END_DECLS

#endif
