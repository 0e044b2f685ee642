/* Ranges of powers in --scales: 2^0..2^24, every fourth power with 2^0..2^24:4, skipping with 2^0..2^24:skip.
 */
#ifndef AB_BENCH_RUN_SCALE_RANGE_H
#define AB_BENCH_RUN_SCALE_RANGE_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_SCALE_RANGE_ITEM = 64 };

typedef struct ab_scale_range {
    double base;
    int first, step, count; /* exponents first, first + step, ... */
    bool skip;              /* overflowed steps are skipped at every scale of it */
} ab_scale_range;

/* Whether `text` is meant as a range: it has "..". */
bool ab_scale_range_is(const char *text);

/* Parses LOW..HIGH[:STEP][:skip]. LOW and HIGH are powers of one base (2^-3) or numbers that are powers of 2,
 * the lower one first; STEP is how many powers further the next scale is. AB_USAGE otherwise. */
AB_MUST_CHECK ab_status ab_scale_range_parse(const char *text, ab_scale_range *range);

/* Writes the i-th scale, "2^7" or "2^7:skip", to item[AB_SCALE_RANGE_ITEM]; returns `item`. */
const char *ab_scale_range_item(const ab_scale_range *range, int i, char *item);

AB_END_DECLS

#endif
