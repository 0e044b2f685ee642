/* Text for people: strings from a document made harmless, numbers with a fixed look. A document may come from
 * anywhere, so nothing of it reaches a terminal, a page or a script before it went through here. */
#ifndef AB_REPORTS_RECORD_TEXT_H
#define AB_REPORTS_RECORD_TEXT_H

#include "kernels/core/compiler.h"

#include <stddef.h>

AB_BEGIN_DECLS

enum { AB_TEXT_NUMBER = 40 };

/* Length of the UTF-8 sequence at `text` (1 to 4) and its code point; 0 when the bytes are not UTF-8
 * (overlong forms, surrogates and values above U+10FFFF included) or `text` is "". */
int ab_text_decode(const char *text, unsigned *point);

/* Copies `source` as one line: control characters, invisible and direction-changing ones and bytes that are
 * not UTF-8 become
 * '?', and so does what starts a command of a CI runner's log ("::" before a word, "##["). What does not fit
 * into `size` - 1 bytes is cut at a whole character and ends in "...". Returns `line`. */
char *ab_text_clean(char *line, size_t size, const char *source);

/* Columns a cleaned line takes on a terminal (one a code point; no wide characters are told apart). */
int ab_text_width(const char *line);

/* Shortens a cleaned line to `width` columns with ".." in its middle. */
void ab_text_elide(char *line, int width);

/* Numbers. Each writes at most AB_TEXT_NUMBER bytes and returns `text`; what is not finite becomes "-". */
char *ab_text_loss(char *text, double loss);     /* 0.4321, 12.35, 1.2e+06 */
char *ab_text_gap(char *text, double gap);       /* +0.0213, -3.1e-05 */
char *ab_text_percent(char *text, double share); /* 0.031 -> 3.10; 1e-6 -> <0.01; 0 -> 0 */
char *ab_text_rate(char *text, double rate);     /* 43.2, 5123 */
char *ab_text_factor(char *text, double factor); /* 1.23x */
char *ab_text_mib(char *text, double bytes);     /* 12.34, in units of 2^20 */
char *ab_text_count(char *text, double count);   /* 938, 1.2e+10 */
char *ab_text_scale(char *text, double scale);   /* 65536, 0.5, 2^24 */

AB_END_DECLS

#endif
