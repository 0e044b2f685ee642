/* Ranges of powers as users write them: 2^0..2^24, and every fourth power with 2^0..2^24:4. */
#ifndef AB_CORE_POWER_RANGE_H
#define AB_CORE_POWER_RANGE_H

#include "kernels/core/compiler.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_POWER_RANGE_ITEM = 64 };

typedef struct ab_power_range {
    double base;
    int first, step, count; /* exponents first, first + step, ... */
} ab_power_range;

/* Whether `text` is meant as a range: it has "..". */
bool ab_power_range_is(const char *text);

/* Parses LOW..HIGH[:STEP] at the start of `text`. LOW and HIGH are powers of one base (2^-3) or numbers that
 * are powers of 2, the lower one first; STEP is how many powers further the next one is. Returns what is left
 * of `text`: "" or a colon and what is no number; NULL: it is no range. */
const char *ab_power_range_parse(const char *text, ab_power_range *range);

/* Writes the i-th power, such as "2^7", to item[AB_POWER_RANGE_ITEM]; returns `item`. */
const char *ab_power_range_item(const ab_power_range *range, int i, char *item);

AB_END_DECLS

#endif
