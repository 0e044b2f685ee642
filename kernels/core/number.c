/* Numbers as users write them. */
#include "kernels/core/number.h"

#include "kernels/core/elementary64.h"

#include <stdlib.h>
#include <string.h>

double ab_number_read(const char *text, char **end) {
    const double base = strtod(text, end);
    const size_t mark = *end == text ? 0 : **end == '^' ? 1 : strncmp(*end, "**", 2) == 0 ? 2 : 0;
    char *behind;
    if (mark == 0) return base;
    const double exponent = strtod(*end + mark, &behind);
    if (behind == *end + mark) return base;
    *end = behind;
    return ab_pow(base, exponent);
}
