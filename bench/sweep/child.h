/* A command that writes lines: its standard output line by line, the last line of its standard error, and how
 * it ended. Its standard input stays open, empty, until it ends or this process does. */
#ifndef AB_BENCH_SWEEP_CHILD_H
#define AB_BENCH_SWEEP_CHILD_H

#include "kernels/files/lines.h"
#include "kernels/spawn/spawn.h"

AB_BEGIN_DECLS

enum { AB_CHILD_REASON = 400 };

typedef struct ab_child {
    ab_spawned process;
    int in, out, err; /* our ends of pipes */
    ab_lines lines, errors;
    char last[AB_CHILD_REASON]; /* line of standard error that is not empty */
    bool open;                  /* standard output has not ended */
} ab_child;

/* Starts argv; program: a path, or a name of PATH. AB_SYSTEM. */
AB_MUST_CHECK ab_status ab_child_start(const char *program, char *const *argv, ab_child *child);

/* Waits at most `milliseconds` for output of children that are open (NULL entries are passed over), and hands
 * their lines to `take` with context[i]. */
AB_MUST_CHECK ab_status ab_children_read(ab_child *const *child, void *const *context, int count,
                                         int milliseconds, ab_line_taker take);

/* Waits for the process and closes all. reason[AB_PART_REASON]: "" if it ended with status 0, else how it
 * ended and what it said last. */
void ab_child_end(ab_child *child, char *reason, size_t size);

/* Ends the process at once. */
void ab_child_kill(ab_child *child);

AB_END_DECLS

#endif
