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

/* Options of a command: finding them among its arguments, and the error for an unknown one. Texts are
 * borrowed throughout. */

/* ---- one by one ------------------------------------------------------------------------------ */

/* Whether argv[*i] is option `name`, as "name=VALUE" or followed by VALUE, and moves *i to the value in that
 * case; *value is "" if it is missing. */
bool ab_is_option(const char *name, int argc, char **argv, int *i, const char **value);

/* AB_USAGE: "scaler: unknown option --jsn; nearest: --json". `word` is the whole argument; option[count]:
 * the command's options. */
ab_status ab_unknown_option(const char *command, const char *word, const char *const *option, int count);

/* ---- by a list ------------------------------------------------------------------------------- */

/* An option and its destination: one of value, flag and take. None of them: an option that the command parses
 * itself, listed only for suggestions. */
typedef struct ab_argument {
    const char *name; /* "--json" */
    const char **value;
    bool *flag;
    ab_status (*take)(void *context, const char *value);
    void *context;
} ab_argument;

typedef struct ab_argument_list {
    const char *command; /* prefix of messages */
    const ab_argument *argument;
    int count;              /* at most AB_ARGUMENTS */
    const char *hint;       /* suffix of the message for an unknown option; NULL: none */
    bool shows_whole_words; /* that message shows "--name=value"; else only the name */
} ab_argument_list;

enum { AB_ARGUMENTS = 32 };

/* Parses the option argv[*i], "--name", "--name VALUE" or "--name=VALUE", and moves *i to its last word.
 * AB_USAGE, naming the command and the option, if it is unknown (with the nearest one), lacks its value or
 * has one that it must not have; otherwise returns the status of `take`. */
AB_MUST_CHECK ab_status ab_take_option(const ab_argument_list *list, int argc, char **argv, int *i);

AB_END_DECLS

#endif
