/* Gradients clipped while they still carry the loss scale: the limit is too tight by the scale. Seen in the
 * record as gradients that lose more than the scale between the backward pass and the optimizer. */
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose_facts.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

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

/* Values that end at the limit over the scale, far below where they came from: the limit itself would have
 * let them pass. */
static bool ends_at_scaled_limit(const ab_case *facts, double value) {
    static const double rounding = 1.01, far = 2;
    const double end = value / facts->skip.least_scale;
    return value > 0 &&
           largest_of(facts, "probes.unscaled_gradients", "unscaled_gradient") <= end * rounding &&
           largest_of(facts, "probes.tensors", "weight_gradient") / facts->skip.largest_scale > far * end;
}

/* The least that clipping in the right order can leave of gradients of norm `raw`: of several steps' at least
 * one step's limit; of values clipped one by one as if all were as large as the largest. */
static double rightly_clipped(const ab_case *facts, double raw, double norm, double value) {
    double left = raw;
    if (value > 0) left = raw * fmin(1, value / largest_gradient(facts));
    return norm > 0 ? fmin(left, norm) : left;
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* Sums over tensors of one kind in one column of their step series. */
typedef struct column {
    double energy, nonzero;
} column;

static column column_of(const ab_case *facts, const char *list, const char *kind, int index) {
    column sum = {0, 0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, list)) {
        const cJSON *energy = cJSON_GetArrayItem(ab_json_at(tensor, "steps.energy"), index),
                    *nonzero = cJSON_GetArrayItem(ab_json_at(tensor, "steps.nonzero"), index);
        if (strcmp(ab_json_text(tensor, "kind", ""), kind) != 0) continue;
        sum.energy += cJSON_IsNumber(energy) ? energy->valuedouble : 0;
        sum.nonzero += cJSON_IsNumber(nonzero) ? nonzero->valuedouble : 0;
    }
    return sum;
}

/* The scale of all steps from `first` to before `last`; NAN if it changed between them. */
static double scale_of_steps(const cJSON *cell, double first, double last) {
    const cJSON *run;
    double end = 0, scale = (double)NAN;
    cJSON_ArrayForEach(run, ab_json_at(cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0), *steps = cJSON_GetArrayItem(run, 1);
        if (!cJSON_IsNumber(value) || !cJSON_IsNumber(steps)) return (double)NAN;
        const double begin = end;
        end += steps->valuedouble;
        if (end <= first) continue;
        if (begin >= last) break;
        if (begin > first) return (double)NAN;
        scale = value->valuedouble;
    }
    return scale;
}

/* Steps whose gradients have a smaller norm than the limit leaves: what they carried it was clipped with.
 * Sums of squares over several steps in a column: each of them keeps the smaller of its norm and the limit,
 * so all keep at least that of their sum. */
typedef struct norms {
    int columns, low;
    double least; /* share of what the limit leaves */
} norms;

static norms compare_norms(const ab_case *facts, double limit) {
    enum { MOST = 512 };
    static const double less = 0.7, same = 0.9;
    norms found = {0, 0, 1};
    const cJSON *tensor = cJSON_GetArrayItem(ab_json_at(facts->cell, "probes.tensors"), 0);
    const double first = ab_json_number(tensor, "steps.first", 0),
                 stride = ab_json_number(tensor, "steps.stride", 1);
    const int columns = cJSON_GetArraySize(ab_json_at(tensor, "steps.energy"));
    for (int i = 0; i < columns && i < MOST; i++) {
        const column raw = column_of(facts, "probes.tensors", "weight_gradient", i),
                     given = column_of(facts, "probes.unscaled_gradients", "unscaled_gradient", i);
        const double scale = scale_of_steps(facts->cell, first + i * stride, first + (i + 1) * stride);
        /* a skipped step's gradients are in one of the two sums only */
        if (!(scale > 1) || !(given.nonzero > same * raw.nonzero)) continue;
        const double share = sqrt(given.energy) / fmin(limit, sqrt(raw.energy) / scale);
        found.columns++;
        found.low += share < less;
        found.least = fmin(found.least, share);
    }
    return found;
}

/* Correct clipping leaves no step below; gradients that shrink escape a limit that is too tight. */
static bool are_low(const norms *found) { return found->low > 0 && 4 * found->low >= found->columns; }

/* ---- over all steps -------------------------------------------------------------------------- */

/* How much gradients shrink between the backward pass and the optimizer, of what the scale and the limit
 * leave; 1 where that is not known. */
static double kept_of(const ab_case *facts, double micro, double norm, double value, bool *clipped) {
    const ab_tensor_sums scaled = ab_tensor_sums_of(facts->cell, "tensors", "weight_gradient", true),
                         given = ab_tensor_sums_of(facts->cell, "unscaled_gradients", "", true);
    const double raw = sqrt(scaled.energy) / facts->skip.least_scale;
    const double kept = sqrt(given.energy) / rightly_clipped(facts, raw, norm, value);
    const bool ends = micro == 1 && given.energy > 0 && ends_at_scaled_limit(facts, value);
    *clipped = kept < 0.1 / micro || ends; /* not if there are no energies */
    return kept;
}

static void say_limit(const ab_case *facts, double limit, ab_verdict *verdict) {
    char scale[AB_TEXT_NUMBER];
    ab_verdict_say(verdict, "at scale %s a limit of %.3g acts as one of %.3g",
                   ab_text_scale(scale, facts->skip.last_scale), limit, limit / facts->skip.last_scale);
    ab_verdict_point(facts, verdict, "/scale");
    ab_text_show(verdict->remedy, sizeof verdict->remedy,
                 "unscale, then clip (a planted fault: --fault none)");
    ab_verdict_option(verdict, "--fault", "none");
}

/* `steps` alone: only what is seen step by step, and so holds whatever the scale did. */
static bool find(const ab_case *facts, bool steps, ab_verdict *verdict) {
    const double norm = ab_json_number(facts->document, "config.clip_norm", 0),
                 value = ab_json_number(facts->document, "config.clip_value", 0);
    if ((norm <= 0 && value <= 0) || facts->skip.largest_scale <= 1) return false;
    const double micro = fmax(1, ab_json_number(facts->document, "config.gradient_accumulation_steps", 1));
    const norms each = norm > 0 && micro == 1 ? compare_norms(facts, norm) : (norms){0, 0, 1};
    bool clipped = false;
    const double kept = kept_of(facts, micro, norm, value, &clipped);
    if (!are_low(&each) && (steps || !clipped)) return false;
    char scale[AB_TEXT_NUMBER];
    verdict->confidence = 0.9;
    verdict->own = true;
    verdict->since = 0;
    if (are_low(&each))
        ab_verdict_say(
            verdict,
            "in %d of %d probed intervals gradients reach the optimizer with less of their norm than a "
            "limit of %.3g leaves, down to %.2g of it",
            each.low, each.columns, norm, each.least);
    else
        ab_verdict_say(
            verdict,
            "between the backward pass and the optimizer gradients shrink by %.3g more than the loss "
            "scale %s and the "
            "limit account for: they are clipped while they carry it",
            1 / kept, ab_text_scale(scale, facts->skip.last_scale));
    ab_verdict_point(facts, verdict, "/probes/unscaled_gradients");
    say_limit(facts, norm > 0 ? norm : value, verdict);
    return true;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    return is_affected(facts) && find(facts, false, verdict);
}

/* Of sums over all steps only at one scale: then what was scaled and what was given are sums over the same
 * steps by the same factor. */
static bool shows(const ab_case *facts, ab_verdict *verdict) {
    return find(facts, facts->skip.least_scale != facts->skip.largest_scale, verdict);
}

const ab_verdict_rule ab_verdict_rule_clip_before_unscale = {
    .id = "clip_before_unscale",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_UPDATE,
    .text = "gradients are clipped before the loss scale is taken out",
    .judge = judge,
    .shows = shows,
};
