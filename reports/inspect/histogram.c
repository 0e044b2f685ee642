/* A histogram for the terminal: one line per power of two, largest magnitudes first, with the limits of
 * one format drawn between the lines. Colour only highlights what the text already states. */
#include "reports/inspect/histogram.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { BAR = 46, LONGEST_GAP = 2, RULE = 74 };

/* Region of a line relative to the limits, from the top. */
typedef enum region { OVERFLOWED, NORMAL, SUBNORMAL, FLUSHED } region;

static const char *const paints[] = {"\33[35m", "", "\33[33m", "\33[31m"}; /* by region */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The region of the middle of [2^exponent, 2^(exponent + 1)). */
static region region_at(const ab_whatif_limits *limits, int exponent) {
    uint32_t middle =
        bits_of(exponent < AB_CENSUS_EMIN + 1 ? ldexpf(1.0F, exponent) : ldexpf(1.5F, exponent));
    if (middle >= limits->overflow) return OVERFLOWED;
    if (middle >= limits->normal) return NORMAL;
    return middle >= limits->kept ? SUBNORMAL : FLUSHED;
}

/* The rule between two regions, e.g. "---- 65520 and more overflow ----". A limit that is never reached
 * has no rule. */
static void print_rule(FILE *out, const ab_whatif_limits *limits, region below) {
    static const char *const words[] = {"", "and more overflow", "and more are normal",
                                        "and less are flushed to zero"};
    uint32_t limit = below == NORMAL      ? limits->overflow
                     : below == SUBNORMAL ? limits->normal
                                          : limits->kept - 1;
    if (limit == 0 || limit >= AB_WHATIF_NEVER) return;
    double value = (double)float_of(limit), power = log2(value);
    char number[64];
    if (power == floor(power))
        ab_text_show(number, sizeof number, "2^%.0f", power);
    else
        ab_text_show(number, sizeof number, "%.6g", value);
    int used = ab_print(out, "  ------- %s %s ", number, words[below]);
    for (; used < RULE; used++) fputc('-', out);
    fputc('\n', out);
}

static void print_line(FILE *out, const ab_inspect_histogram *h, int exponent, int64_t all, int64_t most) {
    char share[AB_TEXT_NUMBER];
    int64_t n = ab_census_at(h->census, exponent);
    int length = (int)((double)n / (double)most * BAR + 0.5);
    ab_print(out, "  2^%-4d %6s %% |", exponent, ab_text_percent(share, (double)n / (double)all));
    if (h->color) fputs(paints[region_at(h->limits, exponent)], out);
    for (int i = 0; i < length; i++) fputc('#', out);
    if (n > 0 && length == 0) fputc('.', out);
    if (h->color && paints[region_at(h->limits, exponent)][0]) fputs("\33[0m", out);
    fputc('\n', out);
}

/* First and last exponent to print: those of the values, and those next to the limits. */
static void find_span(const ab_inspect_histogram *h, int *low, int *high) {
    *low = ilogbf(h->census->min_abs);
    *high = ilogbf(h->census->max_abs);
    for (int e = AB_CENSUS_EMIN; e <= AB_CENSUS_EMAX; e++) {
        if (e > AB_CENSUS_EMIN && region_at(h->limits, e) != region_at(h->limits, e - 1)) {
            if (e - 1 < *low) *low = e - 1;
            if (e > *high) *high = e;
        }
    }
}

static bool empty_run(const ab_inspect_histogram *h, int exponent, int low) {
    region here = region_at(h->limits, exponent);
    for (int e = exponent; e > exponent - LONGEST_GAP - 1; e--)
        if (e < low || ab_census_at(h->census, e) != 0 || region_at(h->limits, e) != here) return false;
    return true;
}

void ab_inspect_print_histogram(FILE *out, const ab_inspect_histogram *h) {
    int64_t all = ab_census_nonzero(h->census), most = 1;
    if (all == 0) return;
    int low = 0, high = 0;
    find_span(h, &low, &high);
    for (int e = low; e <= high; e++)
        if (ab_census_at(h->census, e) > most) most = ab_census_at(h->census, e);
    region above = region_at(h->limits, high);
    for (int e = high; e >= low; e--) {
        region here = region_at(h->limits, e);
        for (int r = (int)above + 1; r <= (int)here; r++) print_rule(out, h->limits, (region)r);
        above = here;
        if (empty_run(h, e, low)) {
            while (e > low && ab_census_at(h->census, e - 1) == 0 && region_at(h->limits, e - 1) == here) e--;
            fputs("      :          |\n", out);
        } else
            print_line(out, h, e, all, most);
    }
}
