/* Ranges of number formats, computed from their rows: as tables and as JSON. */
#ifndef AB_REPORTS_RENDER_FORMAT_RANGES_H
#define AB_REPORTS_RENDER_FORMAT_RANGES_H

#include "kernels/format/block_format.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* A table with a heading and one line for each of format[count]: bits, precision (significand bits with
 * the leading one), largest and smallest magnitudes, eps, and how many binades lie between them. */
void ab_format_ranges_print(FILE *out, const ab_format *const *format, int count);

/* The same for block formats: elements of a block, formats of element and scale, bits that an element
 * costs with its share of the scale. */
void ab_block_format_ranges_print(FILE *out, const ab_block_format *const *format, int count);

/* One format as an object. The caller owns it (cJSON_Delete). Magnitudes have 17 digits. "overflow_limit"
 * is the largest magnitude that may still round to "max", "overflow_at_limit" whether it overflows itself. */
cJSON *ab_format_range_json(const ab_format *format);
cJSON *ab_block_format_range_json(const ab_block_format *format);

AB_END_DECLS

#endif
