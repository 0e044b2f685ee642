/* The subcommands. Each is one file; main.c only dispatches. argv[0] is the subcommand's name. Results go to
 * stdout, everything else to stderr; a failure is returned with its message in ab_error_message(). */
#ifndef AB_BENCH_CMD_CMD_H
#define AB_BENCH_CMD_CMD_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <string.h>

AB_BEGIN_DECLS

/* Whether a word of the command line is --help or -h. */
static inline bool ab_is_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

#define AB_COMMAND(name, text) ab_status ab_cmd_##name(int argc, char **argv);
#include "bench/cmd/commands.def"
#undef AB_COMMAND

AB_END_DECLS

#endif
