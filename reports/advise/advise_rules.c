/* Scales that other tools' rules choose for the same gradients, and their predicted effects. For information
 * only.
 *
 *   max       below overflow by the largest recorded value (Micikevicius et al. 2018, section 3.2)
 *   logmax    2^16 over the 99.9 % point of a normal distribution of log2 of the largest value per step, with
 *             decaying moments (OpenSeq2Seq, LogMax: decays 0.99 and 0.999, 3.09 deviations)
 *   als       the largest scale at which at most 1e-7 of all gradient values are above 65504 / 8
 *             (Graphcore, automatic loss scaling)
 *   adaloss   per layer u_min / (sqrt 2 erfinv(0.001) sigma), sigma the gradient's root mean square (Zhao et
 *             al. 2019); as one scale: the highest of all layers, at most what the largest value allows
 *   dynamic   where halving on overflow and doubling after 2000 clean steps settles: at most one step in 2001
 *             skipped */
#include "reports/advise/advise.h"
#include "reports/record/exponents.h"
#include "reports/record/json.h"

#include <math.h>

static double rule_max(const ab_advise *a) { return ceil(log2(65504) - a->series.top) - 1; }

static double rule_logmax(const ab_advise *a) {
    const double slow_mean = 0.99, slow_square = 0.999, z = 3.09;
    double mean = 0, square = 0, weight = 1, weight_square = 1;
    for (int i = 0; i < a->series.columns; i++) {
        const double x = a->series.largest[i];
        mean = slow_mean * mean + (1 - slow_mean) * x;
        square = slow_square * square + (1 - slow_square) * x * x;
        weight *= slow_mean;
        weight_square *= slow_square;
    }
    mean /= 1 - weight;
    square /= 1 - weight_square;
    return floor(16 - mean - z * sqrt(fmax(square - mean * mean, 0)));
}

/* Share of the values of all cast tensors with an exponent >= `exponent` at scale 1. */
static double share_above(const ab_advise *a, const cJSON *level_cell, double exponent) {
    const cJSON *tensor, *count;
    double all = 0, above = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        double e = ab_json_number(tensor, "exponents.first", 0) - a->base_log2;
        if (!ab_advise_is_cast(level_cell, ab_json_text(tensor, "name", ""))) continue;
        all += ab_json_number(tensor, "count", ab_exponents_all(tensor).count);
        cJSON_ArrayForEach(count, ab_json_at(tensor, "exponents.counts")) {
            if (e >= exponent) above += count->valuedouble;
            e++;
        }
    }
    return all > 0 ? above / all : 0;
}

static double rule_als(const ab_advise *a, const cJSON *level_cell) {
    const double edge = 13 /* 8188 is a hair below 2^13 */, most = 1e-7;
    int k = AB_ADVISE_K_MAX;
    while (k > AB_ADVISE_K_MIN && share_above(a, level_cell, edge - k) > most) k--;
    return k;
}

static double rule_adaloss(const ab_advise *a, const cJSON *level_cell) {
    const double u_min = log2(6.0e-8), erfinv = log2(8.862271573866559e-4), evenly = 7.0 / 3;
    double highest = -(double)INFINITY;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(a->cell, "probes.tensors")) {
        const ab_exponent_mass all = ab_exponents_all(tensor);
        if (!ab_advise_is_cast(level_cell, ab_json_text(tensor, "name", "")) || all.count <= 0) continue;
        const double sigma =
            0.5 * log2(evenly * all.energy / ab_json_number(tensor, "count", all.count)) - a->base_log2;
        highest = fmax(highest, rint(u_min - 0.5 - erfinv - sigma));
    }
    return fmin(highest, rule_max(a));
}

static double rule_dynamic(const ab_advise *a) {
    for (int k = AB_ADVISE_K_MAX; k >= AB_ADVISE_K_MIN; k--) {
        const ab_forecast forecast = ab_advise_overflow_at(a, &a->series, k);
        if (forecast.skipped <= 1.0 / 2001) return k;
    }
    return (double)NAN;
}

void ab_advise_rules(ab_advise *a, const cJSON *level_cell) {
    const ab_advise_rule rule[AB_ADVISE_RULES] = {
        {.name = "max", .text = "largest value seen", .octaves = rule_max(a)},
        {.name = "logmax", .text = "OpenSeq2Seq LogMax", .octaves = rule_logmax(a)},
        {.name = "als", .text = "Graphcore ALS", .octaves = rule_als(a, level_cell)},
        {.name = "adaloss", .text = "AdaLoss, neediest layer", .octaves = rule_adaloss(a, level_cell)},
        {.name = "dynamic", .text = "where apex's scaler settles", .octaves = rule_dynamic(a)},
    };
    for (int i = 0; i < AB_ADVISE_RULES; i++) {
        ab_advise_rule *r = &a->rule[i];
        *r = rule[i];
        r->share = r->energy = r->skipped = (double)NAN;
        if (!isfinite(r->octaves)) continue;
        ab_advise_flush_at(a, level_cell, r->octaves, &r->share, &r->energy);
        r->skipped = ab_advise_overflow_at(a, &a->series, r->octaves).skipped;
    }
}
