/* Computes predictions from census counts. Rounding rules of formats appear only as magnitude limits. */
#include "kernels/census/whatif.h"

#include <math.h>
#include <string.h>

enum { POWER_MIN = -126, POWER_MAX = 127 }; /* range of a normal fp32 scale */

static float float_of(uint32_t bits) {
    float x = 0.0f;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* A threshold on the fp32 product. */
typedef struct threshold {
    double value;
    bool above; /* exclusive: reached only by products greater than value */
} threshold;

static bool reached(const threshold *t, float product) {
    return t->above ? (double)product > t->value : (double)product >= t->value;
}

/* The smallest magnitude whose product with the scale reaches the threshold. Bisection over the bit
 * patterns is exact, double rounding included, and costs 31 multiplications. */
static uint32_t smallest_reaching(const threshold *t, float scale) {
    uint32_t low = 0, high = AB_WHATIF_NEVER;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (reached(t, float_of(middle) * scale))
            high = middle;
        else
            low = middle;
    }
    return high;
}

ab_status ab_whatif_find_limits(const ab_format *format, float scale, ab_ftz ftz, ab_whatif_limits *limits) {
    if (!isnormal(scale) || scale < 0.0f)
        return ab_fail(AB_CONFIG, "scale %g: expected a positive normal fp32 number", (double)scale);
    double smallest = ab_format_min_normal(format);
    /* Half an ulp below the smallest normal is a tie, and the even neighbour is the normal value. */
    threshold carry = {smallest - ab_format_min_subnormal(format) / 2, false};
    threshold normal = {smallest, false};
    threshold kept = {ab_format_flush_limit(format), true};
    threshold overflow = {ab_format_overflow_limit(format), false};
    if (ftz != AB_FTZ_BEFORE) normal = carry;
    if (ftz != AB_FTZ_NONE) kept = normal;
    limits->kept = smallest_reaching(&kept, scale);
    limits->normal = smallest_reaching(&normal, scale);
    limits->overflow = smallest_reaching(&overflow, scale);
    return AB_OK;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* First mantissas of the classes at common and at other exponents; the last entry is the end of the last
 * class. */
static const uint32_t common_edges[AB_CENSUS_COMMON_CLASSES + 1] = {
    0,
    AB_CENSUS_ABOVE_0,
    AB_CENSUS_E5M2_CARRY,
    AB_CENSUS_ABOVE_E4M3_MAX,
    AB_CENSUS_E4M3_CARRY,
    AB_CENSUS_FP16_CARRY,
    AB_CENSUS_FP16_OVERFLOW,
    0x800000u,
};
static const uint32_t outer_edges[AB_CENSUS_CLASSES + 1] = {
    0,
    AB_CENSUS_ABOVE_0,
    AB_CENSUS_ABOVE_BF16_TIE,
    AB_CENSUS_ABOVE_TF32_TIE,
    AB_CENSUS_E5M2_CARRY,
    AB_CENSUS_ABOVE_E4M3_MAX,
    AB_CENSUS_E4M3_CARRY,
    AB_CENSUS_BF16_CARRY,
    AB_CENSUS_BF16_OVERFLOW,
    AB_CENSUS_TF32_CARRY,
    AB_CENSUS_FP16_CARRY,
    AB_CENSUS_FP16_OVERFLOW,
    AB_CENSUS_FP32_CARRY,
    0x800000u,
};

/* Estimated sum of squares of a bin: assumes mantissas uniform over the class. */
static double bin_energy(const ab_census *census, int row, int column) {
    if (census->bin[row][column] == 0) return 0.0;
    int exponent = row + AB_CENSUS_EMIN;
    bool common = exponent >= AB_CENSUS_COMMON_MIN && exponent <= AB_CENSUS_COMMON_MAX;
    const uint32_t *edges = (common ? common_edges : outer_edges) + column;
    double from = 1.0 + (edges[0] - 0.5) * 0x1p-23, to = 1.0 + (edges[1] - 0.5) * 0x1p-23;
    double mean = (from * from + from * to + to * to) / 3.0;
    return ldexp((double)census->bin[row][column] * mean, 2 * exponent);
}

void ab_census_total(const ab_census *census, ab_census_totals *totals) {
    totals->below[0] = 0;
    totals->energy[0] = 0.0;
    for (int row = 0; row < AB_CENSUS_EXPONENTS; row++) {
        int64_t count = 0;
        double energy = 0.0;
        for (int c = 0; c < AB_CENSUS_CLASSES; c++) {
            count += census->bin[row][c];
            energy += bin_energy(census, row, c);
        }
        totals->below[row + 1] = totals->below[row] + count;
        totals->energy[row + 1] = totals->energy[row] + energy;
    }
}

/* Bounds on the count, and the energy, of values below a limit. */
typedef struct part {
    int64_t low, high;
    double energy_low, energy_high;
} part;

static part all_below(const ab_census_totals *totals) {
    int64_t count = totals->below[AB_CENSUS_EXPONENTS];
    double energy = totals->energy[AB_CENSUS_EXPONENTS];
    return (part){count, count, energy, energy};
}

/* A limit that is the first magnitude of its bin splits the values exactly. Inside a bin, the minimum and
 * maximum magnitudes may still decide. */
static part part_below(const ab_census *census, const ab_census_totals *totals, uint32_t limit) {
    if (census->min_abs == 0.0f || float_of(limit) <= census->min_abs) return (part){0, 0, 0.0, 0.0};
    if (float_of(limit) > census->max_abs) return all_below(totals);
    ab_census_place place = ab_census_bin(limit), before = ab_census_bin(limit - 1);
    int64_t count = totals->below[place.row], inside = census->bin[place.row][place.column];
    double energy = totals->energy[place.row];
    for (int c = 0; c < place.column; c++) {
        count += census->bin[place.row][c];
        energy += bin_energy(census, place.row, c);
    }
    bool between = before.row != place.row || before.column != place.column;
    if (between) return (part){count, count, energy, energy};
    return (part){count, count + inside, energy, energy + bin_energy(census, place.row, place.column)};
}

/* Share of some values in the sum of squares. The estimate of the smaller side is divided by the exact
 * sum, because the larger side may be a single value, far from the class mean. */
static double share_of(double some, double all, double exact) {
    double other = all - some;
    if (some == 0.0 || exact == 0.0) return 0.0;
    return some <= other ? fmin(some / exact, 1.0) : fmax(1.0 - other / exact, 0.0);
}

static int64_t at_least_zero(int64_t x) { return x > 0 ? x : 0; }

void ab_whatif_evaluate(const ab_census *census, const ab_census_totals *totals,
                        const ab_whatif_limits *limits, ab_whatif_range *range) {
    part flushed = part_below(census, totals, limits->kept);
    part small = part_below(census, totals, limits->normal);
    part finite = part_below(census, totals, limits->overflow);
    part all = all_below(totals);
    double exact = census->sum_squares;
    range->low = (ab_whatif){flushed.low, at_least_zero(small.low - flushed.high),
                             at_least_zero(finite.low - small.high), all.low - finite.high,
                             share_of(flushed.energy_low, all.energy_low, exact)};
    range->high = (ab_whatif){flushed.high, small.high - flushed.low, finite.high - small.low,
                              all.low - finite.low, share_of(flushed.energy_high, all.energy_high, exact)};
    range->exact = flushed.low == flushed.high && small.low == small.high && finite.low == finite.high;
}

ab_status ab_census_whatif(const ab_census *census, const ab_format *format, int scale_log2,
                           ab_whatif *result) {
    ab_whatif_limits limits;
    ab_census_totals totals;
    ab_whatif_range range;
    if (scale_log2 < POWER_MIN || scale_log2 > POWER_MAX)
        return ab_fail(AB_CONFIG, "scale 2^%d: expected an exponent in %d..%d", scale_log2, POWER_MIN,
                       POWER_MAX);
    AB_TRY(ab_whatif_find_limits(format, ldexpf(1.0f, scale_log2), AB_FTZ_NONE, &limits));
    ab_census_total(census, &totals);
    ab_whatif_evaluate(census, &totals, &limits, &range);
    if (!range.exact)
        return ab_fail(AB_CONFIG, "%s at scale 2^%d: the census cannot tell exactly, only within bounds",
                       format->name, scale_log2);
    *result = range.low;
    return AB_OK;
}
