/* Which powers of two would do as a loss scale. Every outcome is monotone in the scale, so the ends are found by bisection. */
#include "bench/inspect/inspect.h"

#include <math.h>

ab_status ab_inspect_find_limits(const ab_inspect_request *request, ab_inspect_limits *limits) {
    for (int f = 0; f < request->formats; f++) {
        for (int k = AB_INSPECT_MIN; k <= AB_INSPECT_MAX; k++)
            AB_TRY(ab_whatif_find_limits(request->format[f], ldexpf(1.0F, k), request->ftz,
                                         &limits->power[f][k - AB_INSPECT_MIN]));
        AB_TRY(ab_whatif_find_limits(request->format[f], request->scale, request->ftz, &limits->scale[f]));
    }
    return AB_OK;
}

bool ab_inspect_feasible(const ab_inspect_advice *advice) {
    return advice->vacuous || advice->k_lo <= advice->k_hi;
}

/* A question that is false up to some scale and true from there on. */
typedef bool (*question)(const ab_whatif_range *range, int64_t nonzero);

static bool keeps_enough(const ab_whatif_range *range, int64_t nonzero) {
    return range->high.flushed * 1000 <= nonzero * AB_INSPECT_FLUSHED_PER_MILLE;
}

static bool overflows(const ab_whatif_range *range, int64_t nonzero) {
    (void)nonzero;
    return range->high.overflowed > 0;
}

/* The smallest k with a true answer, AB_INSPECT_MAX + 1 when there is none. */
static int first_true(question ask, const ab_whatif_limits *power, const ab_census *census,
                      const ab_census_totals *totals) {
    int low = AB_INSPECT_MIN, high = AB_INSPECT_MAX + 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        ab_whatif_range range;
        ab_whatif_evaluate(census, totals, &power[middle - AB_INSPECT_MIN], &range);
        if (ask(&range, totals->below[AB_CENSUS_EXPONENTS]))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

ab_inspect_advice ab_inspect_advise(const ab_inspect_limits *limits, int f, const ab_census *census,
                                    const ab_census_totals *totals) {
    if (totals->below[AB_CENSUS_EXPONENTS] == 0)
        return (ab_inspect_advice){true, AB_INSPECT_MIN, AB_INSPECT_MAX};
    return (ab_inspect_advice){false, first_true(keeps_enough, limits->power[f], census, totals),
                               first_true(overflows, limits->power[f], census, totals) - 1};
}
