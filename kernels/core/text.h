/* Text in fixed buffers that is never cut without a word. One of these functions for each use:
 *
 *   ab_text_show, ab_text_append   text that people read: what does not fit ends in "..."
 *   ab_text_brief                  a word of a message, in its place "%s" and never "%.40s"
 *   ab_text_exact                  text whose greatest length is known when the program is written
 *   ab_text_fits                   text of any length that must be whole: names, paths, keys; the caller
 * refuses what is too long ab_text_path (text_path.h)     the same of paths, and it says itself what is too
 * long ab_text_new                    text of any length, allocated ab_text_round_trip             a number,
 * exactly
 *
 * Nothing else in the product calls snprintf, strncpy or their kin (tests/lint/text.cmake). */
#ifndef AB_CORE_TEXT_H
#define AB_CORE_TEXT_H

#include "kernels/core/compiler.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* Formats into text[size], size > 0. What does not fit is cut at a whole UTF-8 character and ends in "...".
 * Returns the length of the text written, always below `size`. */
size_t ab_text_show(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);
size_t ab_text_show_args(char *text, size_t size, const char *format, va_list args) AB_PRINTF(3, 0);

/* The same behind the text that text[size] holds already. Returns the length of all of it. */
size_t ab_text_append(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);

/* For words of a message: `text` itself if it has at most `most` bytes, else its beginning and "..." in
 * `most` bytes, which is valid until the thread has asked for eight more. `most` is at most AB_TEXT_BRIEF. */
enum { AB_TEXT_BRIEF = 639 };
const char *ab_text_brief(const char *text, int most);

/* Formats a text that always fits into text[size]: numbers, names from tables, names whose length was
 * checked. Ends the program if it does not: that is a mistake in the program, never in its input. Returns
 * `text`. */
char *ab_text_exact(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);

/* Formats into text[size]. False if it does not fit: `text` is then "", and the caller says what is too long.
 */
AB_MUST_CHECK bool ab_text_fits(char *text, size_t size, const char *format, ...) AB_PRINTF(3, 4);
AB_MUST_CHECK bool ab_text_fits_args(char *text, size_t size, const char *format, va_list args)
    AB_PRINTF(3, 0);

/* The fewest of 15, 16 or 17 significant digits that read back as the same double: 0.1, 65536, 1e+15, inf.
 * text[AB_TEXT_ROUND_TRIP]. Returns `text`. */
enum { AB_TEXT_ROUND_TRIP = 32 };
char *ab_text_round_trip(char *text, double x);

/* Allocates (free). NULL: out of memory. */
AB_MUST_CHECK char *ab_text_new(const char *format, ...) AB_PRINTF(1, 2);
AB_MUST_CHECK char *ab_text_new_args(const char *format, va_list args) AB_PRINTF(1, 0);

AB_END_DECLS

#endif
