/* The program's commands as a table, for dispatch, lists and documentation. bench/cmd/cmd.c defines it from
 * commands.def. */
#ifndef AB_BENCH_HELP_COMMAND_H
#define AB_BENCH_HELP_COMMAND_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

typedef struct ab_command {
    const char *name, *text;                 /* the row of commands.def */
    ab_status (*run)(int argc, char **argv); /* argv[0] is the command's name */
} ab_command;

/* The rows of commands.def, in order. */
extern const ab_command ab_commands[];
extern const char *const ab_command_names[]; /* in the same order */
extern const int ab_command_count;

AB_END_DECLS

#endif
