/* Does not know what the powers are for: each item is text, to be read as if it had been typed. */
#include "kernels/core/power_range.h"

#include "kernels/core/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 64, EXPONENT_MOST = 1100 }; /* doubles end at 2^-1074 and 2^1024 */

typedef struct power {
    double base;
    int exponent;
} power;

bool ab_power_range_is(const char *text) { return strstr(text, "..") != NULL; }

/* "2^7", "10**-3", "128". */
static bool read_power(const char *text, power *p) {
    char *end;
    int of_two;
    const double base = strtod(text, &end);
    const size_t mark = end == text ? 0 : *end == '^' ? 1 : strncmp(end, "**", 2) == 0 ? 2 : 0;
    if (mark == 0) {
        *p = (power){2, 0};
        if (end == text || *end || !isfinite(base) || base <= 0 || frexp(base, &of_two) != 0.5) return false;
        p->exponent = of_two - 1;
        return true;
    }
    const char *exponent = end + mark;
    const long value = strtol(exponent, &end, 10);
    *p = (power){base, (int)(labs(value) <= EXPONENT_MOST ? value : 0)};
    return end != exponent && *end == '\0' && labs(value) <= EXPONENT_MOST && isfinite(base) && base > 1;
}

/* ":4" or nothing; NULL: a step that is none. */
static const char *read_step(const char *rest, int *step) {
    char *end;
    *step = 1;
    if (rest[0] != ':' || isalpha((unsigned char)rest[1])) return rest;
    const long value = strtol(rest + 1, &end, 10);
    *step = (int)value;
    return end == rest + 1 || value < 1 || value > 2 * EXPONENT_MOST ? NULL : end;
}

const char *ab_power_range_parse(const char *text, ab_power_range *range) {
    char low_text[PART], high_text[PART];
    power low, high;
    const char *dots = strstr(text, "..");
    if (!dots) return NULL;
    const char *behind = dots + 2;
    const size_t length = strcspn(behind, ":");
    if (!ab_text_fits(low_text, sizeof low_text, "%.*s", (int)(dots - text), text) ||
        !ab_text_fits(high_text, sizeof high_text, "%.*s", (int)length, behind))
        return NULL;
    if (!read_power(low_text, &low) || !read_power(high_text, &high) || low.base != high.base ||
        low.exponent > high.exponent)
        return NULL;
    int step;
    const char *rest = read_step(behind + length, &step);
    if (!rest) return NULL;
    *range = (ab_power_range){low.base, low.exponent, step, (high.exponent - low.exponent) / step + 1};
    return rest[0] == '\0' || rest[0] == ':' ? rest : NULL;
}

const char *ab_power_range_item(const ab_power_range *range, int i, char *item) {
    char base[AB_TEXT_ROUND_TRIP];
    return ab_text_exact(item, AB_POWER_RANGE_ITEM, "%s^%d", ab_text_round_trip(base, range->base),
                         range->first + i * range->step);
}
