/* Enumeration and comparison only; no rounding arithmetic, no kernels.
 *
 * The finite magnitudes of a format are numbered 0, 1, 2, ... by their codes. Between code c and code c + 1
 * all inputs on the same side of the midpoint have the same result, so an interval of inputs is filled in
 * runs. */
#include "bench/prove/oracle.h"

enum { FP32_FRACTION = 23, FP32_EMIN = -126, FP32_LAST = -149 };

static const uint32_t fp32_infinity = 0x7f800000U, fp32_quiet = 0x00400000U;

bool ab_oracle_covers(const ab_format *format) {
    return format->precision <= FP32_FRACTION + 1 && format->emin >= FP32_EMIN && format->emax <= 127;
}

/* ---- the numbers of a format ----------------------------------------------------------------- */

/* A magnitude m * 2^q, m < 2^25. */
typedef struct number {
    uint64_t m;
    int q;
} number;

/* IEEE 754-2019, 3.4, with u = 2^(emin + 1 - p): field 0 is m * u, field E is (2^(p-1) + m) * 2^(E-1) * u. */
static number number_of(const ab_format *format, uint64_t code) {
    uint64_t per_binade = UINT64_C(1) << (format->precision - 1);
    uint64_t field = code / per_binade;
    number x = {code % per_binade, format->emin + 1 - format->precision};
    if (field == 0) return x;
    x.m += per_binade;
    x.q += (int)field - 1;
    return x;
}

static uint64_t position(number x) {
    if (x.m == 0) return 0;
    while (x.m < UINT64_C(1) << (FP32_FRACTION + 1)) { /* 25 bits: the last bit is one half step */
        if (x.q == FP32_LAST - 1) break;
        x.m *= 2;
        x.q--;
    }
    /* x.m is now in half steps of the binade that starts at 2^24 half steps; subnormals start at 0 with the
     * same step */
    uint64_t binades = (uint64_t)(x.q - (FP32_LAST - 1));
    return x.m + (binades << (FP32_FRACTION + 1));
}

uint64_t ab_oracle_position(const ab_format *format, uint64_t code) {
    return position(number_of(format, code));
}

uint64_t ab_oracle_midpoint(const ab_format *format, uint64_t code) {
    number x = number_of(format, code);
    number middle = {2 * x.m + 1, x.q - 1};
    return position(middle);
}

static uint64_t ones(const ab_format *format) { return (UINT64_C(1) << (format->bits - 1)) - 1; }

/* The code of the largest finite number. */
static uint64_t last_code(const ab_format *format) {
    uint64_t code = ones(format);
    if (format->infinity)
        return code - (UINT64_C(1) << (format->precision - 1)); /* the last binade of codes is reserved */
    return format->nan ? code - 1 : code;
}

/* ---- the result at each place ---------------------------------------------------------------- */

typedef enum place { ON, BELOW_MIDDLE, MIDDLE, ABOVE_MIDDLE } place;

/* Whether the magnitude rounds up from code to code + 1. */
static bool moves(ab_round_mode mode, bool negative, uint64_t code, place at) {
    if (at == ON) return false;
    if (mode == AB_ROUND_UP) return !negative;
    if (mode == AB_ROUND_DOWN) return negative;
    if (mode == AB_ROUND_TOWARD_ZERO) return false;
    if (at == MIDDLE) return mode == AB_ROUND_NEAREST_AWAY || code % 2 == 1;
    return at == ABOVE_MIDDLE;
}

typedef struct answer {
    uint32_t code, value;
} answer;

static answer with_sign(const ab_format *format, uint64_t code, uint32_t value, bool negative) {
    answer result = {(uint32_t)(code + (negative ? ones(format) + 1 : 0)),
                     value + (negative ? 0x80000000U : 0)};
    return result;
}

static answer finite(const ab_format *format, uint64_t code, bool negative) {
    return with_sign(format, code, (uint32_t)(ab_oracle_position(format, code) / 2), negative);
}

static answer infinite(const ab_format *format, bool saturate, bool negative) {
    if (saturate || !format->nan) return finite(format, last_code(format), negative);
    if (format->infinity) return with_sign(format, last_code(format) + 1, fp32_infinity, negative);
    uint32_t fraction = (1U << FP32_FRACTION) - (1U << (FP32_FRACTION + 1 - format->precision));
    return with_sign(format, ones(format), fp32_infinity + fraction, negative);
}

/* 754-2019, 7.4: nearest modes overflow to infinity, directed modes only in their direction. */
static answer overflowed(const ab_format *format, const ab_rounding *rounding, bool negative) {
    bool to_infinity = rounding->mode == AB_ROUND_NEAREST_EVEN || rounding->mode == AB_ROUND_NEAREST_AWAY ||
                       (rounding->mode == AB_ROUND_UP && !negative) ||
                       (rounding->mode == AB_ROUND_DOWN && negative);
    if (to_infinity) return infinite(format, rounding->saturate, negative);
    return finite(format, last_code(format), negative);
}

static answer answer_at(const ab_format *format, const ab_rounding *rounding, bool negative, uint64_t code,
                        place at) {
    uint64_t first_normal = UINT64_C(1) << (format->precision - 1);
    if (rounding->ftz == AB_FTZ_BEFORE && code < first_normal) return finite(format, 0, negative);
    if (code <= last_code(format) && moves(rounding->mode, negative, code, at)) code++;
    if (rounding->ftz == AB_FTZ_AFTER && code < first_normal) return finite(format, 0, negative);
    return code > last_code(format) ? overflowed(format, rounding, negative) : finite(format, code, negative);
}

static answer nan_answer(const ab_format *format, uint32_t bits, bool negative) {
    if (!format->infinity) return infinite(format, !format->nan, negative);
    uint32_t worth =
        1U << (FP32_FRACTION + 1 - format->precision); /* weight of the last payload bit that fits */
    uint32_t payload = bits % (1U << FP32_FRACTION) / worth;
    uint32_t quiet = fp32_quiet / worth;
    if (payload < quiet) payload += quiet;
    return with_sign(format, last_code(format) + 1 + payload, fp32_infinity + payload * worth, negative);
}

/* ---- filling runs ---------------------------------------------------------------------------- */

/* The output arrays and how far they are filled; `at` is the magnitude of the next input. */
typedef struct writer {
    uint32_t *codes, *values;
    uint64_t at, end;
} writer;

/* Writes the result for all inputs below `limit` (a position). */
static void fill(writer *out, uint64_t limit, answer what) {
    uint64_t stop = (limit + 1) / 2 < out->end ? (limit + 1) / 2 : out->end;
    for (; out->at < stop; out->at++) {
        *out->codes++ = what.code;
        *out->values++ = what.value;
    }
}

/* The last code at or below the position; one past the last finite code represents all beyond. */
static uint64_t code_below(const ab_format *format, uint64_t wanted) {
    uint64_t low = 0, high = last_code(format) + 2;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (ab_oracle_position(format, middle) <= wanted)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void ab_oracle_round(const ab_format *format, const ab_rounding *rounding, uint32_t first, int64_t n,
                     uint32_t *codes, uint32_t *values) {
    bool negative = first >= 0x80000000U;
    uint64_t start = first % 0x80000000U, end = start + (uint64_t)n;
    writer out = {codes, values, start, end < fp32_infinity ? end : fp32_infinity};
    uint64_t beyond = last_code(format) + 1;
    for (uint64_t code = code_below(format, 2 * start); out.at < out.end; code++) {
        uint64_t on = ab_oracle_position(format, code), middle = ab_oracle_midpoint(format, code);
        uint64_t next = code < beyond ? ab_oracle_position(format, code + 1) : UINT64_MAX / 2;
        if (code == beyond) middle = on + 1; /* all positions beyond overflow in the same way */
        fill(&out, on + 1, answer_at(format, rounding, negative, code, ON));
        fill(&out, middle, answer_at(format, rounding, negative, code, BELOW_MIDDLE));
        fill(&out, middle + 1, answer_at(format, rounding, negative, code, MIDDLE));
        fill(&out, next, answer_at(format, rounding, negative, code, ABOVE_MIDDLE));
    }
    out.end = end;
    if (out.at == fp32_infinity && out.at < end)
        fill(&out, 2 * (uint64_t)fp32_infinity + 1, infinite(format, rounding->saturate, negative));
    while (out.at < end) fill(&out, 2 * out.at + 1, nan_answer(format, (uint32_t)out.at, negative));
}
