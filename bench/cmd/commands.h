/* The program's commands as a table, for dispatch, lists and documentation. */
#ifndef AB_BENCH_CMD_COMMANDS_H
#define AB_BENCH_CMD_COMMANDS_H

#include "bench/help/usage.h"

AB_BEGIN_DECLS

/* The rows of commands.def, in order. */
extern const ab_command ab_commands[];
extern const char *const ab_command_names[]; /* in the same order */
extern const int ab_command_count;

AB_END_DECLS

#endif
