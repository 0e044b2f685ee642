/* Loss-scale advice from censuses. Uses counts only; rounding is modelled in whatif.h. */
#include "reports/advise/scale_advice.h"

#include <math.h>

bool ab_scale_feasible(const ab_scale_range *range) { return range->vacuous || range->k_lo <= range->k_hi; }

/* ---- one tensor ------------------------------------------------------------------------------ */

/* Input of the search over scales. */
typedef struct scale_search {
    const ab_census *census;
    const ab_format *format;
    const ab_scale_goal *goal;
    ab_census_totals totals;
    int64_t nonzero;
} scale_search;

static ab_status range_at(const scale_search *q, int k, ab_whatif_range *range) {
    ab_whatif_limits limits;
    AB_TRY(ab_whatif_find_limits(q->format, ldexpf(1.0f, k), q->goal->ftz, &limits));
    ab_whatif_evaluate(q->census, &q->totals, &limits, range);
    return AB_OK;
}

static bool high_enough(const scale_search *q, const ab_whatif_range *range) {
    return (double)range->high.flushed <= q->goal->flushed_share * (double)q->nonzero &&
           range->high.flushed_energy <= q->goal->flushed_energy;
}

static bool too_high(const scale_search *q, const ab_whatif_range *range) {
    (void)q;
    return range->high.overflowed > 0;
}

/* The smallest k at which a condition holds that, once true, stays true; k_max + 1 if it never does. */
static ab_status first_scale(const scale_search *q,
                             bool (*holds)(const scale_search *, const ab_whatif_range *), int *first) {
    int low = q->goal->k_min, high = q->goal->k_max + 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        ab_whatif_range range;
        AB_TRY(range_at(q, middle, &range));
        if (holds(q, &range))
            high = middle;
        else
            low = middle + 1;
    }
    *first = low;
    return AB_OK;
}

static ab_status check_goal(const ab_scale_goal *goal) {
    if (goal->k_min < -126 || goal->k_max > 127 || goal->k_min > goal->k_max)
        return ab_fail(AB_CONFIG, "scales 2^%d to 2^%d: expected ascending exponents within -126..127",
                       goal->k_min, goal->k_max);
    return AB_OK;
}

ab_status ab_scale_range_of(const ab_census *census, const ab_format *format, const ab_scale_goal *goal,
                            ab_scale_range *range) {
    scale_search q;
    AB_TRY(check_goal(goal));
    q.census = census;
    q.format = format;
    q.goal = goal;
    q.nonzero = ab_census_nonzero(census);
    range->vacuous = q.nonzero == 0;
    range->k_lo = goal->k_min;
    range->k_hi = goal->k_max;
    if (range->vacuous) return AB_OK;
    ab_census_total(census, &q.totals);
    AB_TRY(first_scale(&q, high_enough, &range->k_lo));
    AB_TRY(first_scale(&q, too_high, &range->k_hi));
    range->k_hi--;
    return AB_OK;
}

/* ---- many tensors ---------------------------------------------------------------------------- */

void ab_scale_advice_begin(ab_scale_advice *advice, const ab_scale_goal *goal) {
    advice->low_tensor = advice->high_tensor = -1;
    advice->every = (ab_scale_range){true, goal->k_min, goal->k_max};
}

/* Narrows `every` to what this tensor allows as well. */
void ab_scale_advice_add(ab_scale_advice *advice, int tensor, const ab_scale_range *range) {
    if (range->vacuous) return;
    if (advice->low_tensor < 0 || range->k_lo > advice->every.k_lo) {
        advice->every.k_lo = range->k_lo;
        advice->low_tensor = tensor;
    }
    if (advice->high_tensor < 0 || range->k_hi < advice->every.k_hi) {
        advice->every.k_hi = range->k_hi;
        advice->high_tensor = tensor;
    }
    advice->every.vacuous = false;
}

ab_status ab_scale_advice_finish(ab_scale_advice *advice, const ab_census *pool, const ab_format *format,
                                 const ab_scale_goal *goal) {
    AB_TRY(ab_scale_range_of(pool, format, goal, &advice->pooled));
    advice->feasible = ab_scale_feasible(&advice->every);
    advice->k = advice->every.k_hi > advice->every.k_lo ? advice->every.k_hi - 1 : advice->every.k_hi;
    return AB_OK;
}

/* ---- expected extremes ----------------------------------------------------------------------- */

ab_gumbel ab_gumbel_fit(const double *log2_max, int steps) {
    const double euler = 0.57721566490153286, ln2 = 0.69314718055994531;
    double b0 = 0.0, b1 = 0.0; /* probability-weighted moments */
    for (int i = 0; i < steps; i++) {
        b0 += log2_max[i] / steps;
        b1 += log2_max[i] / steps * i / (steps - 1);
    }
    double beta = (2.0 * b1 - b0) / ln2;
    return (ab_gumbel){.mu = b0 - euler * beta, .beta = beta};
}

double ab_gumbel_quantile(const ab_gumbel *law, double alpha) {
    return law->mu - law->beta * log(-log1p(-alpha));
}
