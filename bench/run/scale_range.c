/* Ranges of powers in --scales. Does not know what a loss scale is: each item is parsed as if it were typed.
 */
#include "bench/run/scale_range.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 64, EXPONENT_MOST = 1100 }; /* doubles end at 2^-1074 and 2^1024 */

typedef struct power {
    double base;
    int exponent;
} power;

bool ab_scale_range_is(const char *text) { return strstr(text, "..") != NULL; }

static ab_status refuse(const char *text) {
    return ab_fail(
        AB_USAGE,
        "--scales: expected a range of powers such as 2^0..2^24, 2^0..2^24:4 (every fourth power) or "
        "2^0..2^24:skip, the lower one first, found '%s'",
        text);
}

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

/* ":4", ":skip", ":4:skip" or nothing. */
static bool read_rest(const char *rest, ab_scale_range *range) {
    char *end;
    if (rest[0] == ':' && strcmp(rest, ":skip") != 0) {
        const long step = strtol(rest + 1, &end, 10);
        if (end == rest + 1 || step < 1 || step > 2 * EXPONENT_MOST) return false;
        range->step = (int)step;
        rest = end;
    }
    range->skip = strcmp(rest, ":skip") == 0;
    return range->skip || rest[0] == '\0';
}

ab_status ab_scale_range_parse(const char *text, ab_scale_range *range) {
    char low_text[PART], high_text[PART];
    power low, high;
    const char *dots = strstr(text, "..");
    *range = (ab_scale_range){.step = 1};
    if (!dots) return refuse(text);
    const char *behind = dots + 2;
    const size_t length = strcspn(behind, ":");
    if (!ab_text_fits(low_text, sizeof low_text, "%.*s", (int)(dots - text), text) ||
        !ab_text_fits(high_text, sizeof high_text, "%.*s", (int)length, behind))
        return refuse(text);
    if (!read_power(low_text, &low) || !read_power(high_text, &high) || low.base != high.base ||
        low.exponent > high.exponent || !read_rest(behind + length, range))
        return refuse(text);
    range->base = low.base;
    range->first = low.exponent;
    range->count = (high.exponent - low.exponent) / range->step + 1;
    return AB_OK;
}

const char *ab_scale_range_item(const ab_scale_range *range, int i, char *item) {
    char base[AB_TEXT_ROUND_TRIP];
    return ab_text_exact(item, AB_SCALE_RANGE_ITEM, "%s^%d%s", ab_text_round_trip(base, range->base),
                         range->first + i * range->step, range->skip ? ":skip" : "");
}
