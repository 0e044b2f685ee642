/* Ranges of number formats, computed from their definitions, as tables and as JSON. */
#ifndef AB_REPORTS_RENDER_FORMAT_RANGES_H
#define AB_REPORTS_RENDER_FORMAT_RANGES_H

#include "kernels/format/block_format.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Prints a table with a heading and one line per format[count]: bits, precision (significand bits
 * including the leading bit), largest and smallest magnitudes, eps, and the number of binades between
 * them. */
void ab_format_ranges_print(FILE *out, const ab_format *const *format, int count);

/* The same for block formats: elements per block, formats of element and scale, bits per element including
 * its share of the scale. */
void ab_block_format_ranges_print(FILE *out, const ab_block_format *const *format, int count);

/* Returns one format as an object owned by the caller (cJSON_Delete). Magnitudes have 17 digits.
 * "overflow_limit" is the largest magnitude that may still round to "max"; "overflow_at_limit" says
 * whether the limit itself overflows. */
cJSON *ab_format_range_json(const ab_format *format);
cJSON *ab_block_format_range_json(const ab_block_format *format);

AB_END_DECLS

#endif
