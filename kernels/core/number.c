/* Numbers as users write them. */
#include "kernels/core/number.h"

#include "kernels/core/elementary64.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

double ab_number_read(const char *text, char **end) {
    const double base = strtod(text, end);
    const size_t mark = *end == text ? 0 : **end == '^' ? 1 : strncmp(*end, "**", 2) == 0 ? 2 : 0;
    char *behind;
    if (mark == 0) return base;
    const double exponent = strtod(*end + mark, &behind);
    const bool whole = behind != *end + mark;
    *end = whole ? behind : (char *)(uintptr_t)text;
    return whole ? ab_pow(base, exponent) : 0;
}
