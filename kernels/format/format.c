/* Scalar reference of all formats: integer arithmetic on the bits of a double, parameterised by the
 * format's row. Optimised for clarity; the vector kernels are the fast path. */
#include "kernels/format/format.h"

#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <threads.h>

#define AB_FORMAT(name, bits, precision, emin, emax, infinity, nan, storage_bytes, text)                     \
    const ab_format ab_format_##name = {#name,    bits, precision,     emin, emax,                           \
                                        infinity, nan,  storage_bytes, text};
#include "kernels/format/formats.def"
#undef AB_FORMAT

static const ab_format *const rows[] = {
#define AB_FORMAT(name, bits, precision, emin, emax, infinity, nan, storage_bytes, text) &ab_format_##name,
#include "kernels/format/formats.def"
#undef AB_FORMAT
};

static const struct {
    const char *name;
    const ab_format *format;
} aliases[] = {
    {"float64", &ab_format_fp64},
    {"double", &ab_format_fp64},
    {"float32", &ab_format_fp32},
    {"float", &ab_format_fp32},
    {"single", &ab_format_fp32},
    {"float16", &ab_format_fp16},
    {"half", &ab_format_fp16},
    {"bfloat16", &ab_format_bf16},
    {"e4m3", &ab_format_fp8_e4m3},
    {"e4m3fn", &ab_format_fp8_e4m3},
    {"float8_e4m3fn", &ab_format_fp8_e4m3},
    {"e5m2", &ab_format_fp8_e5m2},
    {"float8_e5m2", &ab_format_fp8_e5m2},
    {"e2m1", &ab_format_fp4_e2m1},
};

int ab_format_count(void) { return (int)AB_COUNT_OF(rows); }

const ab_format *ab_format_at(int i) { return rows[i]; }

/* ---- formats made from a name ---------------------------------------------------------------- */

enum { X_MIN = 2, X_MAX = 11, Y_MIN = 1, Y_MAX = 52, USER_NAME = 32 };

static ab_format user_formats[X_MAX - X_MIN + 1][Y_MAX - Y_MIN + 1];
static char user_names[X_MAX - X_MIN + 1][Y_MAX - Y_MIN + 1][USER_NAME];
static once_flag user_once = ONCE_FLAG_INIT;

/* All of them at once: 520 rows are cheaper than a lock and a list. */
static void fill_user_formats(void) {
    for (int x = X_MIN; x <= X_MAX; x++) {
        for (int y = Y_MIN; y <= Y_MAX; y++) {
            char *name = user_names[x - X_MIN][y - Y_MIN];
            int emax = (1 << (x - 1)) - 1;
            ab_format format = {
                name, 1 + x + y, y + 1, 1 - emax, emax, true, true, 0, "user format, IEEE encoding"};
            ab_text_exact(name, USER_NAME, "e%dm%d", x, y);
            user_formats[x - X_MIN][y - Y_MIN] = format;
        }
    }
}

static const ab_format *user_format(const char *name) {
    call_once(&user_once, fill_user_formats);
    for (int x = X_MIN; x <= X_MAX; x++)
        for (int y = Y_MIN; y <= Y_MAX; y++)
            if (strcmp(name, user_names[x - X_MIN][y - Y_MIN]) == 0)
                return &user_formats[x - X_MIN][y - Y_MIN];
    return NULL;
}

static ab_status unknown_format(const char *name) {
    const char *names[AB_COUNT_OF(rows) + AB_COUNT_OF(aliases)];
    int count = 0, x = 0, y = 0;
    char rest = '\0';
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) names[count++] = rows[i]->name;
    for (size_t i = 0; i < AB_COUNT_OF(aliases); i++) names[count++] = aliases[i].name;
    if (sscanf(name, "e%4dm%4d%c", &x, &y, &rest) == 2)
        return ab_fail(AB_CONFIG, "format \"%s\": expected eXmY with X in %d..%d and Y in %d..%d",
                       ab_text_brief(name, 60), X_MIN, X_MAX, Y_MIN, Y_MAX);
    const char *near = ab_nearest(name, names, count);
    if (near != NULL)
        return ab_fail(AB_CONFIG, "unknown format \"%s\"; nearest: %s", ab_text_brief(name, 60), near);
    return ab_fail(AB_CONFIG, "unknown format \"%s\"; expected fp16, bf16, fp32, tf32, fp8_e4m3, ... or eXmY",
                   ab_text_brief(name, 60));
}

ab_status ab_format_find(const char *name, const ab_format **format) {
    *format = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(rows) && *format == NULL; i++)
        if (strcmp(name, rows[i]->name) == 0) *format = rows[i];
    for (size_t i = 0; i < AB_COUNT_OF(aliases) && *format == NULL; i++)
        if (strcmp(name, aliases[i].name) == 0) *format = aliases[i].format;
    if (*format == NULL) *format = user_format(name);
    return *format != NULL ? AB_OK : unknown_format(name);
}

/* ---- range ----------------------------------------------------------------------------------- */

size_t ab_format_bytes(const ab_format *format, int64_t n) {
    size_t each = format->storage_bytes > 0 ? (size_t)format->storage_bytes : sizeof(float);
    return (size_t)n * each;
}

/* All exponent and fraction bits set. */
static uint64_t all_ones(const ab_format *format) { return (UINT64_C(1) << (format->bits - 1)) - 1; }

uint64_t ab_format_max_code(const ab_format *format) {
    if (format->infinity) return all_ones(format) - (UINT64_C(1) << (format->precision - 1));
    return format->nan ? all_ones(format) - 1 : all_ones(format);
}

double ab_format_max(const ab_format *format) { return ab_format_decode(format, ab_format_max_code(format)); }

double ab_format_min_normal(const ab_format *format) { return ldexp(1.0, format->emin); }

double ab_format_min_subnormal(const ab_format *format) {
    return ldexp(1.0, format->emin - (format->precision - 1));
}

double ab_format_eps(const ab_format *format) { return ldexp(1.0, 1 - format->precision); }

int ab_format_binades(const ab_format *format) { return format->emax - format->emin + format->precision; }

double ab_format_flush_limit(const ab_format *format) { return ab_format_min_subnormal(format) / 2; }

double ab_format_overflow_limit(const ab_format *format) {
    double half_ulp = ldexp(1.0, format->emax - format->precision);
    double tie = ab_format_max(format) + half_ulp;
    bool tie_stays = (ab_format_max_code(format) & 1) == 0;
    return tie_stays ? nextafter(tie, HUGE_VAL) : tie;
}

/* ---- encode ---------------------------------------------------------------------------------- */

static const char *const mode_names[] = {"rne", "rna", "rz", "ru", "rd", "sr"}; /* index: ab_round_mode */

ab_status ab_round_mode_find(const char *name, ab_round_mode *mode) {
    for (size_t i = 0; i < AB_COUNT_OF(mode_names); i++) {
        if (strcmp(name, mode_names[i]) != 0) continue;
        *mode = (ab_round_mode)i;
        return AB_OK;
    }
    return ab_fail(AB_CONFIG, "unknown rounding mode \"%s\"; expected rne, rna, rz, ru, rd or sr",
                   ab_text_brief(name, 60));
}

const char *ab_round_mode_name(ab_round_mode mode) {
    return (size_t)mode < AB_COUNT_OF(mode_names) ? mode_names[mode] : "unknown";
}

enum { FRACTION_BITS = 52, DOUBLE_EMIN = -1022, DOUBLE_BIAS = 1023 };
static const uint64_t hidden_bit = UINT64_C(1) << FRACTION_BITS;

/* x = (-1)^negative * significand * 2^(exponent - 52) when exponent <= 1023; else inf (fraction 0) or NaN. */
typedef struct parts {
    bool negative;
    int exponent;
    uint64_t significand;
} parts;

static parts split(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t fraction = bits & (hidden_bit - 1);
    int field = (int)(bits >> FRACTION_BITS & 0x7ff);
    parts result = {bits >> 63 != 0, field == 0 ? DOUBLE_EMIN : field - DOUBLE_BIAS,
                    field == 0 ? fraction : fraction | hidden_bit};
    return result;
}

/* Stochastic: compares the leading bits of the discarded fraction, rest / 2^shift, with as many random bits.
 */
static bool random_goes_up(const ab_rounding *rounding, uint64_t rest, int shift) {
    int drop = shift - rounding->random_bits;
    uint64_t leading = drop <= 0 ? rest << -drop : drop < 64 ? rest >> drop : 0;
    return rounding->random >> (32 - rounding->random_bits) < leading;
}

/* Whether the kept magnitude (an integer) is incremented. The discarded fraction is rest / 2^shift; rest <
 * 2^53, so it is below one half for any shift above 63. */
static bool goes_up(const ab_rounding *rounding, bool negative, uint64_t kept, uint64_t rest, int shift) {
    if (rest == 0) return false;
    uint64_t half = UINT64_C(1) << (shift < 63 ? shift - 1 : 62);
    if (rounding->mode == AB_ROUND_NEAREST_EVEN) return rest > half - (kept & 1);
    if (rounding->mode == AB_ROUND_NEAREST_AWAY) return rest >= half;
    if (rounding->mode == AB_ROUND_UP) return !negative;
    if (rounding->mode == AB_ROUND_DOWN) return negative;
    return rounding->mode == AB_ROUND_STOCHASTIC && random_goes_up(rounding, rest, shift);
}

static uint64_t infinity_code(const ab_format *format, bool saturate) {
    if (saturate || !format->nan) return ab_format_max_code(format);
    return format->infinity ? ab_format_max_code(format) + 1 : all_ones(format);
}

static uint64_t overflow_code(const ab_format *format, const ab_rounding *rounding, bool negative) {
    bool inward =
        rounding->mode == AB_ROUND_TOWARD_ZERO || rounding->mode == (negative ? AB_ROUND_UP : AB_ROUND_DOWN);
    return infinity_code(format, rounding->saturate || inward);
}

static uint64_t nan_code(const ab_format *format, uint64_t fraction) {
    if (!format->infinity) return format->nan ? all_ones(format) : ab_format_max_code(format);
    uint64_t quiet = UINT64_C(1) << (format->precision - 2);
    return infinity_code(format, false) | quiet | fraction >> (FRACTION_BITS + 1 - format->precision);
}

/* The magnitude's code. Codes of finite magnitudes are consecutive integers, so a carry out of the
 * significand gives the next binade, and after the last one the code after max. */
static uint64_t finite_code(const ab_format *format, const ab_rounding *rounding, const parts *x) {
    int binade = x->exponent > format->emin ? x->exponent : format->emin;
    int shift = binade - (format->precision - 1) - (x->exponent - FRACTION_BITS);
    uint64_t below_one = (UINT64_C(1) << (shift < 63 ? shift : 63)) - 1;
    uint64_t rest = x->significand & below_one;
    uint64_t kept = (x->significand - rest) >> (shift < 63 ? shift : 63);
    uint64_t min_normal = UINT64_C(1) << (format->precision - 1);
    if (rounding->ftz == AB_FTZ_BEFORE && kept < min_normal) return 0;
    uint64_t code = ((uint64_t)(binade - format->emin) << (format->precision - 1)) + kept +
                    (goes_up(rounding, x->negative, kept, rest, shift) ? 1 : 0);
    if (rounding->ftz == AB_FTZ_AFTER && code < min_normal) return 0;
    return code > ab_format_max_code(format) ? overflow_code(format, rounding, x->negative) : code;
}

uint64_t ab_format_encode(const ab_format *format, const ab_rounding *rounding, double x) {
    parts p = split(x);
    uint64_t fraction = p.significand & (hidden_bit - 1);
    uint64_t code = 0;
    if (p.exponent <= DOUBLE_BIAS)
        code = finite_code(format, rounding, &p);
    else
        code = fraction != 0 ? nan_code(format, fraction) : infinity_code(format, rounding->saturate);
    return code | (uint64_t)p.negative << (format->bits - 1);
}

/* ---- decode ---------------------------------------------------------------------------------- */

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double ab_format_decode(const ab_format *format, uint64_t code) {
    uint64_t magnitude = code & all_ones(format);
    uint64_t sign = (code >> (format->bits - 1) & 1) << 63;
    uint64_t fraction = magnitude & ((UINT64_C(1) << (format->precision - 1)) - 1);
    int field = (int)(magnitude >> (format->precision - 1));
    if (magnitude > ab_format_max_code(format)) {
        uint64_t payload = fraction << (FRACTION_BITS + 1 - format->precision);
        bool infinite = format->infinity && fraction == 0;
        return from_bits(sign | UINT64_C(0x7ff) << FRACTION_BITS |
                         (infinite ? 0 : payload | hidden_bit >> 1));
    }
    if (field != 0) fraction |= UINT64_C(1) << (format->precision - 1);
    int exponent = format->emin + (field != 0 ? field - 1 : 0) - (format->precision - 1);
    double value = ldexp((double)fraction, exponent);
    return sign != 0 ? -value : value;
}

double ab_format_round(const ab_format *format, const ab_rounding *rounding, double x) {
    return ab_format_decode(format, ab_format_encode(format, rounding, x));
}
