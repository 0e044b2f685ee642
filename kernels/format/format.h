/* Number formats: one row of formats.def defines every property and conversion of a format.
 *
 * The scalar functions here are the reference. The vector kernels (convert.h) must match them bit for bit.
 * Sources: IEEE 754-2019 sections 3 and 4; OCP OFP8 specification rev 1.0 (E4M3, E5M2). Nothing here
 * allocates. */
#ifndef AB_KERNELS_FORMAT_FORMAT_H
#define AB_KERNELS_FORMAT_FORMAT_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_format {
    const char *name;  /* "fp16"; name in options and JSON */
    int bits;          /* width of the encoding */
    int precision;     /* significand bits, hidden bit included */
    int emin, emax;    /* exponents of the smallest normal and the largest binade */
    bool infinity;     /* IEEE encoding; false: finite only ("fn"), overflow becomes NaN */
    bool nan;          /* false (never with infinity): every code is finite, overflow and NaN become +-max */
    int storage_bytes; /* bytes of one stored element; 0: kept in an fp32 container, bytes are modelled */
    const char *text;
} ab_format;

/* Formats of formats.def by identifier: &ab_format_fp16. */
#define AB_FORMAT(name, bits, precision, emin, emax, infinity, nan, storage_bytes, text)                     \
    extern const ab_format ab_format_##name;
#include "kernels/format/formats.def"
#undef AB_FORMAT

/* Number of rows of formats.def and the i-th of them, in file order. */
int ab_format_count(void);
const ab_format *ab_format_at(int i);

/* The format called `name`: a row of formats.def, an alias (float32, half, e4m3, ...), or any "eXmY" with 2
 * <= X <= 11 and 1 <= Y <= 52 (IEEE encoding, no storage type). e4m3, e5m2 and e2m1 are aliases of the rows.
 * AB_CONFIG with the nearest name otherwise. The result is static; the same name gives the same pointer.
 * Thread-safe. */
AB_MUST_CHECK ab_status ab_format_find(const char *name, const ab_format **format);

/* The encoding of the largest finite magnitude; all smaller codes are the finite magnitudes in order. */
uint64_t ab_format_max_code(const ab_format *format);

/* Bytes of n elements as stored (fp32 container for formats without a storage type). */
size_t ab_format_bytes(const ab_format *format, int64_t n);

/* Range, exact in double. eps is the distance from 1 to the next larger value; binades counts exponents,
 * including those of subnormals (fp16: 40). */
double ab_format_max(const ab_format *format);
double ab_format_min_normal(const ab_format *format);
double ab_format_min_subnormal(const ab_format *format);
double ab_format_eps(const ab_format *format);
int ab_format_binades(const ab_format *format);
/* Largest magnitude that rounds to 0 (nearest even) (fp16: 2^-25), and the smallest that overflows
 * (fp16: 65520; fp8_e4m3: the next double above 464, since the tie goes to 448). */
double ab_format_flush_limit(const ab_format *format);
double ab_format_overflow_limit(const ab_format *format);

typedef enum ab_round_mode {
    AB_ROUND_NEAREST_EVEN, /* "rne" */
    AB_ROUND_NEAREST_AWAY, /* "rna" */
    AB_ROUND_TOWARD_ZERO,  /* "rz" */
    AB_ROUND_UP,           /* "ru": toward +inf */
    AB_ROUND_DOWN,         /* "rd": toward -inf */
    AB_ROUND_STOCHASTIC    /* "sr": see random_bits */
} ab_round_mode;

typedef enum ab_ftz {
    AB_FTZ_NONE,   /* subnormals kept */
    AB_FTZ_BEFORE, /* |x| < min normal before rounding becomes 0 */
    AB_FTZ_AFTER   /* a result that rounds to a subnormal becomes 0 */
} ab_ftz;

/* All zero: to nearest even, not saturating, subnormals kept. Overflow (a result above max were the exponent
 * unbounded) follows IEEE 754-2019 section 7.4: inf for the nearest modes and stochastic; +-max where the
 * direction forbids inf (toward zero; up for negative, down for positive values). In finite-only formats
 * inf becomes NaN. An infinite x stays inf in every mode. Zeros keep their sign, and so do results
 * that underflow or are flushed. */
typedef struct ab_rounding {
    ab_round_mode mode;
    bool saturate; /* finite overflow and inf go to +-max instead of inf (or NaN for finite-only formats) */
    ab_ftz ftz;
    int random_bits; /* stochastic: 1..32, number of leading bits r of `random`. Compared with as many
                      * leading bits t of the discarded fraction: away from zero if r < t, with
                      * probability t / 2^random_bits
                      */
    uint32_t random; /* stochastic: the random word of this element */
} ab_rounding;

/* Parses "rne", "rna", "rz", "ru", "rd", "sr". */
AB_MUST_CHECK ab_status ab_round_mode_find(const char *name, ab_round_mode *mode);
const char *ab_round_mode_name(ab_round_mode mode);

/* The encoding of x in `format`, in the low `bits` bits. NaN stays NaN: quieted, with its sign and leading
 * payload bits; finite-only formats have one NaN per sign. Formats without NaN give +-max by its sign. */
uint64_t ab_format_encode(const ab_format *format, const ab_rounding *rounding, double x);

/* The value of an encoding; exact. NaN is quieted. */
double ab_format_decode(const ab_format *format, uint64_t code);

/* Equal to decode(encode(x)), computed directly: the value of x after being stored in `format`. */
double ab_format_round(const ab_format *format, const ab_rounding *rounding, double x);

AB_END_DECLS

#endif
