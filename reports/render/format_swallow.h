/* When an update that is added to a stored weight is lost: the rule of a format, with worked numbers. */
#ifndef AB_REPORTS_FORMAT_SWALLOW_H
#define AB_REPORTS_FORMAT_SWALLOW_H

#include "kernels/format/format.h"

#include <stdio.h>

AB_BEGIN_DECLS

/* The largest update that rounding to nearest swallows: w + update is stored as w. w is a value of the
 * format, greater than 0. */
double ab_format_swallowed(const ab_format *format, double w);

/* The rule and a table of examples. */
void ab_format_swallow_print(FILE *out, const ab_format *format);

AB_END_DECLS

#endif
