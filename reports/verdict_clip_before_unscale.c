/* Gradients clipped while they still carry the loss scale: the limit is too tight by the scale. Seen in the record as gradients that
 * lose more than the scale between the backward pass and the optimizer. */
#include "reports/diagnose_facts.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>
#include <string.h>

/* Or O0 is too, because it was given the same scale. */
static bool is_affected(const ab_case *facts) {
    return ab_case_fails_alone(facts) || (ab_baseline_fails(facts) && ab_first_scale(facts->baseline) > 1);
}

static double largest_of(const ab_case *facts, const char *list, const char *kind) {
    const cJSON *tensor;
    double largest = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, list)) {
        if (strcmp(ab_json_text(tensor, "kind", ""), kind) == 0)
            largest = fmax(largest, ab_json_number(tensor, "max_abs", 0));
    }
    return largest;
}

/* The largest weight gradient of the probed steps, without the scale. */
static double largest_gradient(const ab_case *facts) {
    return largest_of(facts, "probes.tensors", "weight_gradient") / facts->skip.least_scale;
}

/* Values that end at the limit over the scale, far below where they came from: the limit itself would have let them pass. */
static bool ends_at_scaled_limit(const ab_case *facts, double value) {
    static const double rounding = 1.01, far = 2;
    const double end = value / facts->skip.least_scale;
    return value > 0 &&
           largest_of(facts, "probes.unscaled_gradients", "unscaled_gradient") <= end * rounding &&
           largest_of(facts, "probes.tensors", "weight_gradient") / facts->skip.largest_scale > far * end;
}

/* The least that clipping in the right order can leave of gradients of norm `raw`: of several steps' at least one step's limit; of
 * values clipped one by one as if all were as large as the largest. */
static double rightly_clipped(const ab_case *facts, double raw, double norm, double value) {
    double left = raw;
    if (value > 0) left = raw * fmin(1, value / largest_gradient(facts));
    return norm > 0 ? fmin(left, norm) : left;
}

static bool find(const ab_case *facts, ab_verdict *verdict) {
    const double norm = ab_json_number(facts->document, "config.clip_norm", 0),
                 value = ab_json_number(facts->document, "config.clip_value", 0);
    if ((norm <= 0 && value <= 0) || facts->skip.largest_scale <= 1) return false;
    const double micro = fmax(1, ab_json_number(facts->document, "config.gradient_accumulation_steps", 1));
    const ab_tensor_sums scaled = ab_tensor_sums_of(facts->cell, "tensors", "weight_gradient", true),
                         given = ab_tensor_sums_of(facts->cell, "unscaled_gradients", "", true);
    const double raw = sqrt(scaled.energy) / facts->skip.least_scale;
    const double kept = sqrt(given.energy) / rightly_clipped(facts, raw, norm, value);
    const bool ends = micro == 1 && given.energy > 0 && ends_at_scaled_limit(facts, value);
    if (!(kept < 0.1 / micro) && !ends) return false; /* and not if there are no energies */
    char scale[AB_TEXT_NUMBER];
    verdict->confidence = 0.9;
    verdict->own = true;
    verdict->since = 0;
    ab_verdict_say(verdict,
                   "between the backward pass and the optimizer gradients shrink by %.3g more than the loss "
                   "scale %s and the "
                   "limit account for: they are clipped while they carry it",
                   1 / kept, ab_text_scale(scale, facts->skip.last_scale));
    ab_verdict_point(facts, verdict, "/probes/unscaled_gradients");
    ab_verdict_say(verdict, "at scale %s a limit of %.3g acts as one of %.3g", scale, norm > 0 ? norm : value,
                   (norm > 0 ? norm : value) / facts->skip.last_scale);
    ab_verdict_point(facts, verdict, "/scale");
    snprintf(verdict->remedy, sizeof verdict->remedy, "unscale, then clip (a planted fault: --fault none)");
    ab_verdict_option(verdict, "--fault", "none");
    return true;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    return is_affected(facts) && find(facts, verdict);
}

/* One scale all the time: then what was scaled and what was given are sums over the same steps by the same factor. */
static bool shows(const ab_case *facts, ab_verdict *verdict) {
    return facts->skip.least_scale == facts->skip.largest_scale && find(facts, verdict);
}

const ab_verdict_rule ab_verdict_rule_clip_before_unscale = {
    .id = "clip_before_unscale",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_UPDATE,
    .text = "gradients are clipped before the loss scale is taken out",
    .judge = judge,
    .shows = shows,
};
