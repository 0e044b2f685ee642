/* Numbers in lines of logs, each the double that strtod reads. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LONGEST: longest number that is read, in bytes; DIGITS: as many are below 2^64. */
enum { LONGEST = 64, DIGITS = 19 };

static bool digit(char c) { return c >= '0' && c <= '9'; }

static bool part_of_number(char c) {
    return digit(c) || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

/* ---- exact arithmetic -------------------------------------------------------------------------- */

/* Two exact doubles and one rounding. W. D. Clinger, How to read floating point numbers accurately, 1990. */
static bool round_double(uint64_t digits, int power, double *value) {
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int most = (int)AB_COUNT_OF(ten) - 1;
    if (digits > (uint64_t)1 << DBL_MANT_DIG || power < -most || power > most) return false;
    *value = power < 0 ? (double)digits / ten[-power] : (double)digits * ten[power];
    return true;
}

#if defined(__x86_64__) && LDBL_MANT_DIG == 64
/* The same with 64 bits of precision, then a second rounding to 53. It differs from a single one only where
 * the first ends in the middle between two doubles: false there. Powers of ten up to 10^27 are exact. */
static bool round_extended(uint64_t digits, int power, double *value) {
    static const long double ten[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                      1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                      1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    enum { BEHIND = 64 - DBL_MANT_DIG };
    const int most = (int)AB_COUNT_OF(ten) - 1;
    uint64_t mantissa;
    if (power < -most || power > most) return false;
    const long double once = power < 0 ? (long double)digits / ten[-power] : (long double)digits * ten[power];
    memcpy(&mantissa, &once, sizeof mantissa);
    *value = (double)once;
    return (mantissa & (((uint64_t)1 << BEHIND) - 1)) != (uint64_t)1 << (BEHIND - 1);
}
#else
static bool round_extended(uint64_t digits, int power, double *value) {
    (void)digits, (void)power, (void)value;
    return false;
}
#endif

/* ---- decimal numbers --------------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__GNUC__)
/* Eight digits at once, the first in the lowest byte; zero bytes count as zeros. */
static uint64_t eight_digits(uint64_t word) {
    word = (word & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8;
    word = (word & 0x00ff00ff00ff00ff) * 6553601 >> 16;
    return (word & 0x0000ffff0000ffff) * 42949672960001 >> 32;
}

/* How many of eight bytes are digits, up to the first that is none. */
static int digits_of(uint64_t word) {
    const uint64_t from_zero = word ^ 0x3030303030303030,
                   other = (from_zero | (from_zero + 0x7676767676767676)) & 0x8080808080808080;
    return other ? __builtin_ctzll(other) / 8 : 8;
}

/* By eights as long as there are so many bytes. */
static const char *take_words(const char *at, const char *end, uint64_t *digits) {
    static const uint64_t ten[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    uint64_t word;
    for (int count = 8; count == 8 && end - at >= 8; at += count) {
        memcpy(&word, at, sizeof word);
        count = digits_of(word);
        if (count > 0) *digits = *digits * ten[count] + eight_digits(word << (64 - 8 * count));
    }
    return at;
}
#else
static const char *take_words(const char *at, const char *end, uint64_t *digits) {
    (void)end, (void)digits;
    return at;
}
#endif

static inline const char *take_digits(const char *at, const char *end, uint64_t *digits) {
    at = take_words(at, end, digits);
    uint64_t whole = *digits;
    for (; at < end && digit(*at); at++) whole = whole * 10 + (uint64_t)(*at - '0');
    *digits = whole;
    return at;
}

/* Behind an e: "-07" is -7. NULL: no digits, or more than four. */
static const char *take_exponent(const char *at, const char *end, int *power) {
    const bool negative = at < end && *at == '-';
    int size = 0;
    const char *from = at += at < end && (*at == '-' || *at == '+');
    for (; at < end && digit(*at) && at - from < 5; at++) size = size * 10 + (*at - '0');
    if (at == from || at - from > 4) return NULL;
    *power += negative ? -size : size;
    return at;
}

/* Digits of [from, to) without zeros before the others. */
static ptrdiff_t significant(const char *from, const char *to) {
    ptrdiff_t count = 0;
    for (; from < to && *from != 'e' && *from != 'E'; from++)
        count += digit(*from) && (count > 0 || *from != '0');
    return count;
}

/* A number that ends at a sign which is in no number, in one pass; NULL: it is another. */
static const char *read_plain(const char *from, const char *end, double *value) {
    const bool negative = from < end && *from == '-';
    const char *first = from + (from < end && (*from == '-' || *from == '+')), *point;
    uint64_t digits = 0;
    int power = 0;
    const char *at = take_digits(first, end, &digits);
    ptrdiff_t count = at - first;
    if (at < end && *at == '.') {
        point = ++at;
        at = take_digits(at, end, &digits);
        power = -(int)(at - point < LONGEST ? at - point : LONGEST);
        count += at - point;
    }
    const char *stop = at;
    if (count == 0) return NULL;
    if (at < end && (*at == 'e' || *at == 'E') && !(at = take_exponent(at + 1, end, &power))) return NULL;
    if ((at < end && part_of_number(*at)) || at - from > LONGEST) return NULL;
    if (count > DIGITS && significant(first, stop) > DIGITS) return NULL;
    if (!round_double(digits, power, value) && !round_extended(digits, power, value)) return NULL;
    if (negative) *value = -*value;
    return at;
}

/* Any other, by strtod: all signs of numbers up to the last digit. NULL: there is none. */
static const char *read_other(const char *at, const char *end, double *value) {
    char text[LONGEST + 1], *stop;
    const char *to = at;
    while (to < end && part_of_number(*to)) to++;
    while (to > at && !digit(to[-1]) && !(to[-1] == '.' && to > at + 1)) to--; /* "0.5-" */
    const size_t size = (size_t)(to - at);
    if (size == 0 || size > LONGEST) return NULL;
    memcpy(text, at, size);
    text[size] = '\0';
    *value = strtod(text, &stop);
    return stop == text + size ? to : NULL;
}

/* ---- words -------------------------------------------------------------------------------------- */

static bool starts(const char *at, const char *end, const char *word) {
    const size_t size = strlen(word);
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0;
}

/* nan, NaN, Infinity, True, ...; returns its end. NULL: it is none. */
static const char *read_word(const char *at, const char *end, double *value) {
    static const struct {
        const char *word;
        double value;
    } words[] = {{"NaN", (double)NAN},
                 {"nan", (double)NAN},
                 {"NAN", (double)NAN},
                 {"Infinity", (double)INFINITY},
                 {"inf", (double)INFINITY},
                 {"Inf", (double)INFINITY},
                 {"INF", (double)INFINITY},
                 {"True", 1},
                 {"False", 0},
                 {"true", 1},
                 {"false", 0}};
    const bool negative = at < end && *at == '-';
    at += negative;
    if (at == end || !isalpha((unsigned char)*at)) return NULL;
    for (size_t i = 0; i < AB_COUNT_OF(words); i++) {
        const char *to = at + strlen(words[i].word);
        if (!starts(at, end, words[i].word)) continue;
        if (to < end && (isalnum((unsigned char)*to) || *to == '_')) continue;
        *value = negative ? -words[i].value : words[i].value;
        return to;
    }
    return NULL;
}

static bool opening(char c) { return c == ' ' || c == '\t' || c == '"' || c == '\'' || c == '[' || c == '('; }

static const char *skip_opening(const char *at, const char *end) {
    while (at < end && opening(*at)) at++;
    return at < end && *at == 't' && starts(at, end, "tensor(") ? at + strlen("tensor(") : at;
}

bool ab_log_number(const ab_log_line *line, const char *at, double *value, const char **after) {
    at = skip_opening(at, line->end);
    const char *stop = read_plain(at, line->end, value);
    if (!stop) stop = read_word(at, line->end, value);
    if (!stop) stop = read_other(at, line->end, value);
    if (!stop) return false;
    if (after) *after = stop;
    return !(line->cut && stop == line->end);
}

/* ---- digits ------------------------------------------------------------------------------------- */

/* Half of 10^n. */
static double half_unit(int n) {
    static const double halves[] = {5e-1, 5e-2, 5e-3, 5e-4, 5e-5, 5e-6, 5e-7, 5e-8};
    return n <= 0 && -n < (int)AB_COUNT_OF(halves) ? halves[-n] : 0.5 * pow(10, n);
}

double ab_log_digit_error(const char *from, const char *end) {
    int behind = 0, power = 0;
    bool point = false;
    for (from = skip_opening(from, end); from < end && part_of_number(*from); from++) {
        if (*from == 'e' || *from == 'E') {
            (void)take_exponent(from + 1, end, &power);
            break;
        }
        behind += point && digit(*from);
        point = point || *from == '.';
    }
    return half_unit(power - behind);
}
