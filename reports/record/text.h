/* Text for display: sanitised strings from a document, numbers in a fixed format. Documents are untrusted
 * input; all their text passes through here before it is written to a terminal, a page or a script. */
#ifndef AB_REPORTS_RECORD_TEXT_H
#define AB_REPORTS_RECORD_TEXT_H

#include "kernels/core/compiler.h"

#include <stddef.h>

AB_BEGIN_DECLS

enum { AB_TEXT_NUMBER = 40 };

/* Copies `source` as one line. Control characters, invisible and direction-changing characters, invalid
 * UTF-8 and the start of a CI runner's command (kernels/core/show.h) become '?'. Text longer than `size`
 * - 1 bytes is truncated at a character boundary and ends in "...". Returns `line`. */
char *ab_text_clean(char *line, size_t size, const char *source);

/* Terminal columns of a cleaned line (one per code point; wide characters are not recognised). */
int ab_text_width(const char *line);

/* Shortens a cleaned line to `width` columns, with ".." in the middle. */
void ab_text_elide(char *line, int width);

/* The same, with `head` columns before the ".." and `tail` after it. */
void ab_text_elide_to(char *line, int head, int tail);

/* Number formats. Each writes at most AB_TEXT_NUMBER bytes and returns `text`; non-finite values become
 * "-". */
char *ab_text_loss(char *text, double loss);     /* 0.4321, 12.35, 1.2e+06 */
char *ab_text_gap(char *text, double gap);       /* +0.0213, -3.1e-05 */
char *ab_text_percent(char *text, double share); /* 0.031 -> 3.10; 1e-6 -> <0.01; 0 -> 0 */
/* A share known within +- `side`, to two digits of it: 2.4±1.2, 0.86±0.39; without it where it is 0 as
 * shown; 2.40±? where it is not finite. */
char *ab_text_percent_within(char *text, double share, double side);
char *ab_text_rate(char *text, double rate);     /* 43.2, 5123 */
char *ab_text_factor(char *text, double factor); /* 1.23x */
char *ab_text_mib(char *text, double bytes);     /* 12.34, in units of 2^20 */
char *ab_text_count(char *text, double count);   /* 938, 1.2e+10 */
char *ab_text_scale(char *text, double scale);   /* 65536, 0.5, 2^24 */

AB_END_DECLS

#endif
