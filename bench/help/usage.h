/* The help of the program's commands. Every command documents its options in `--help`; manual pages and shell
 * completions are generated from that text, so that an option is documented once. */
#ifndef AB_BENCH_HELP_USAGE_H
#define AB_BENCH_HELP_USAGE_H

#include "kernels/core/status.h"

#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_usage_option {
    char name[40];     /* "--levels" */
    char argument[48]; /* "LIST"; "" for a flag */
    char text[640];    /* one line */
} ab_usage_option;

typedef struct ab_usage {
    const char *command, *text; /* the row of commands.def */
    char *help;                 /* all of `ampbench COMMAND --help` */
    int options;
    ab_usage_option *option; /* in order, each name once */
} ab_usage;

typedef struct ab_command {
    const char *name, *text;                 /* the row of commands.def */
    ab_status (*run)(int argc, char **argv); /* argv[0] is the command's name */
} ab_command;

/* Whose help this is: the program says it once, before any command runs. The table is kept. */
void ab_usage_set_commands(const ab_command *commands, int count);

/* The commands by number in [0, count): name, and the line of `ampbench help`. */
int ab_usage_count(void);
const char *ab_usage_name(int command);
const char *ab_usage_text(int command);

/* Runs a command with arguments[0..count) (after its name) and returns what it printed; the caller frees.
 * Only for commands that print: nothing else may write to stdout meanwhile. */
AB_MUST_CHECK ab_status ab_usage_capture(int command, const char *const *arguments, int count, char **text);

/* Reads the command's help and its options. The caller clears *usage, also after a failure. */
AB_MUST_CHECK ab_status ab_usage_read(int command, ab_usage *usage);
void ab_usage_clear(ab_usage *usage);

/* Returns whether a line of help documents an option; if so, fills *option from it. */
int ab_usage_parse(const char *line, ab_usage_option *option);

/* Writes the manual page of a command in man(7) format; -1: of the program. */
AB_MUST_CHECK ab_status ab_man_write(int command, FILE *out);

/* Writes the completion script for bash, zsh or fish. */
AB_MUST_CHECK ab_status ab_completion_write(const char *shell, FILE *out);

AB_END_DECLS

#endif
