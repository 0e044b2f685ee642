/* Text from outside on a terminal or in a log: names of files and ops, values of options, strings of
 * documents. Such text may hold control characters, line breaks and commands of terminals and CI runners;
 * here they become visible escapes, so that a line stays one line and no command. Error messages (ab_fail)
 * and warnings (ab_warn) go through ab_text_escape; everything else is printed by ab_print. Writers of JSON,
 * HTML, XML, CSV, Markdown and gnuplot have escapes of their own. tests/lint/print.cmake forbids printf. */
#ifndef AB_CORE_SHOW_H
#define AB_CORE_SHOW_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Returns the length of the UTF-8 sequence at `text` (1 to 4) and its code point; 0 if the bytes are not
 * valid UTF-8 (including overlong forms, surrogates and values above U+10FFFF) or `text` is "". */
int ab_text_decode(const char *text, unsigned *point);

/* Is the code point invisible, or does it change how others are displayed: controls (C0, DEL, C1),
 * zero-width, direction marks, byte-order mark, line separators, tags, private use? */
bool ab_text_is_hidden(unsigned point);

/* Does a command of a CI runner start at `text`: "##[", "##vso[" or "##teamcity[" anywhere, or "::" if
 * `first`, at the start of a line or word? */
bool ab_text_is_command(const char *text, bool first);

/* Copies `source` as one line: hidden characters become \n, \r, \t, \x1b, \u202e or \U000e0041, bytes that
 * are not UTF-8 \xff, and the first character of a runner's command \x3a or \x23. Escaping twice changes
 * nothing more. Text that does not fit into line[size] ends in "..." (no escape is cut). Returns `line`. */
char *ab_text_escape(char *line, size_t size, const char *source);

/* As fprintf, but what the arguments hold is escaped as by ab_text_escape; only line breaks of `format` break
 * lines. Other control characters of `format` are escaped too: write them with fputs. Returns the number of
 * bytes written. Check ferror(out) for errors. */
int ab_print(FILE *out, const char *format, ...) AB_PRINTF(2, 3);

/* Writes `word` as one word of a shell command, in single quotes. If it has something to escape, in $'...',
 * which bash, zsh and ksh read. */
void ab_print_shell_word(FILE *out, const char *word);

/* Writes `text` as a quoted JSON string. Invisible characters and those that change how others are displayed
 * and the first of a CI runner's "##[" are written as \uXXXX, a byte that is not UTF-8 as U+FFFD.
 * Check ferror(out) for errors. */
void ab_json_put_text(FILE *out, const char *text);

AB_END_DECLS

#endif
