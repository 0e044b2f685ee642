/* Numbers as users write them: 128, 1e-3, 2^7, 10**-3. */
#ifndef AB_CORE_NUMBER_H
#define AB_CORE_NUMBER_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* Reads a number at the start of `text` as strtod does, or two of them joined by ^ or **, a base and its
 * exponent. *end: behind what was read; `text` itself, and the result 0, where there is no number or no
 * exponent follows. */
double ab_number_read(const char *text, char **end);

AB_END_DECLS

#endif
