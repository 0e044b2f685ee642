/* Text in fixed buffers, never truncated silently, and the nearest of several names. One function per use:
 *
 *   ab_text_show, ab_text_append   text for users: truncated text ends in "..."
 *   ab_text_brief                  an argument of a message; use with "%s", never "%.40s"
 *   ab_text_exact                  text whose maximum length is known at compile time
 *   ab_text_fits                   names, paths, keys; the caller reports text that is too long
 *   ab_text_path                   the same for paths; reports the error itself
 *   ab_text_new                    text of any length, allocated
 *   ab_text_round_trip             a number, exactly
 *
 * No other code calls snprintf, strncpy or similar functions (tests/lint/text.cmake). */
#ifndef AB_CORE_TEXT_H
#define AB_CORE_TEXT_H

#include "kernels/core/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Formats into text[size], size > 0. Text that does not fit is truncated at a UTF-8 character boundary and
 * ends in "...". Returns the length of the text written, always below `size`. */
size_t ab_text_show(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);
size_t ab_text_show_args(char *text, size_t size, const char *format, va_list args) AB_PRINTF(3, 0);

/* Appends to the string in text[size]. Returns the total length. */
size_t ab_text_append(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);

/* For arguments of a message: `text` itself if it has at most `most` bytes, else its beginning and "..."
 * in `most` bytes, valid until this thread has made eight more calls. `most` <= AB_TEXT_BRIEF. */
enum { AB_TEXT_BRIEF = 639 };
const char *ab_text_brief(const char *text, int most);

/* Formats a text that always fits into text[size]: numbers, names from tables, names whose length was
 * checked. Aborts if it does not fit, which is a bug, never an input error. Returns
 * `text`. */
char *ab_text_exact(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);

/* Formats into text[size]. Returns false if it does not fit; `text` is then "" and the caller reports the
 * error.
 */
AB_MUST_CHECK bool ab_text_fits(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);
AB_MUST_CHECK bool ab_text_fits_args(char *text, size_t size, const char *format, va_list args)
    AB_PRINTF(3, 0);

/* The fewest of 15, 16 or 17 significant digits that read back as the same double: 0.1, 65536, 1e+15, inf.
 * text[AB_TEXT_ROUND_TRIP]. Returns `text`. */
enum { AB_TEXT_ROUND_TRIP = 32 };
char *ab_text_round_trip(char *text, double x);

/* Allocated string, owned by the caller (free). NULL: out of memory. */
AB_MUST_CHECK char *ab_text_new(const char *format, ...) AB_PRINTF(1, 2);
AB_MUST_CHECK char *ab_text_new_args(const char *format, va_list args) AB_PRINTF(1, 0);

/* The entry of names[0..count) closest to `word`, or NULL if none is close.
 * Distance is the least number of single-character insertions, deletions, substitutions and transpositions
 * of adjacent characters (restricted Damerau-Levenshtein; Damerau, CACM 7(3), 1964), case-insensitive.
 * Close means at most one edit per three characters of the longer word, rounded up; a name that begins
 * with `word` (at least 3 characters) is close too. The first of equal distances wins. NULL entries of
 * `names` are skipped. */
const char *ab_nearest(const char *word, const char *const *names, int count);

AB_END_DECLS

#endif
