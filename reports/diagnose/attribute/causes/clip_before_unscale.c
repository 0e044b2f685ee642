/* Gradients clipped before they are unscaled: the limit is too tight by a factor of the loss scale. In the
 * record, gradients shrink by more than the scale between the backward pass and the optimizer. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The cell fails, or O0 does and has a loss scale too. */
static bool is_affected(const ab_case *c) {
    return ab_case_fails_alone(c) || (ab_baseline_fails(c) && ab_first_scale(c->facts.baseline) > 1);
}

static double largest_of(const ab_case *c, const char *list, const char *kind) {
    const cJSON *tensor;
    double largest = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, list)) {
        if (strcmp(ab_json_text(tensor, "kind", ""), kind) == 0)
            largest = fmax(largest, ab_json_number(tensor, "max_abs", 0));
    }
    return largest;
}

/* The largest weight gradient of the probed steps, unscaled. */
static double largest_gradient(const ab_case *c) {
    return largest_of(c, "probes.tensors", "weight_gradient") / c->facts.skip.least_scale;
}

/* Values end at limit / scale, far below their size before; the limit itself would not have clipped them so
 * far. */
static bool ends_at_scaled_limit(const ab_case *c, double value) {
    const ab_thresholds *t = c->facts.limits;
    const double end = value / c->facts.skip.least_scale;
    return value > 0 &&
           largest_of(c, "probes.unscaled_gradients", "unscaled_gradient") <= end * t->clip_rounding &&
           largest_of(c, "probes.tensors", "weight_gradient") / c->facts.skip.largest_scale >
               t->clip_far * end;
}

/* Lower bound of the norm that correct clipping leaves of gradients of norm `raw`: for several steps, one
 * step's limit; for clipping by value, as if all values were as large as the largest. */
static double rightly_clipped(const ab_case *c, double raw, double norm, double value) {
    double left = raw;
    if (value > 0) left = raw * fmin(1, value / largest_gradient(c));
    return norm > 0 ? fmin(left, norm) : left;
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* Sums over tensors of one kind in one column of their step series. */
typedef struct column {
    double energy, nonzero;
} column;

static column column_of(const ab_case *c, const char *list, const char *kind, int index) {
    column sum = {0, 0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, list)) {
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

/* Columns whose gradients have a smaller norm than the limit leaves: they were clipped while scaled. If a
 * column sums the squares of several steps, each step keeps min(its norm, limit), so the column keeps at
 * least min(norm of the sum, limit). */
typedef struct norms {
    int columns, low;
    double least; /* smallest ratio to what the limit leaves */
} norms;

static norms compare_norms(const ab_case *c, double limit) {
    enum { MOST = 512 };
    const ab_thresholds *t = c->facts.limits;
    norms found = {0, 0, 1};
    const cJSON *tensor = cJSON_GetArrayItem(ab_json_at(c->facts.cell, "probes.tensors"), 0);
    const double first = ab_json_number(tensor, "steps.first", 0),
                 stride = ab_json_number(tensor, "steps.stride", 1);
    const int columns = cJSON_GetArraySize(ab_json_at(tensor, "steps.energy"));
    for (int i = 0; i < columns && i < MOST; i++) {
        const column raw = column_of(c, "probes.tensors", "weight_gradient", i),
                     given = column_of(c, "probes.unscaled_gradients", "unscaled_gradient", i);
        const double scale = scale_of_steps(c->facts.cell, first + i * stride, first + (i + 1) * stride);
        /* a skipped step's gradients are in one of the two sums only */
        if (!(scale > 1) || !(given.nonzero > t->clip_same * raw.nonzero)) continue;
        const double share = sqrt(given.energy) / fmin(limit, sqrt(raw.energy) / scale);
        found.columns++;
        found.low += share < t->clip_less;
        found.least = fmin(found.least, share);
    }
    return found;
}

/* True if a quarter of the columns are low: correct clipping leaves none, and small gradients are not clipped
 * at all. */
static bool are_low(const ab_case *c, const norms *found) {
    return found->low > 0 && found->low >= c->facts.limits->clip_columns * found->columns;
}

/* ---- over all steps -------------------------------------------------------------------------- */

/* Norm of the gradients at the optimizer over the norm expected from the backward pass, scale and limit; NAN
 * if not recorded. *clipped: too small for correct clipping. */
static double kept_of(const ab_case *c, double micro, double norm, double value, bool *clipped) {
    const ab_tensor_sums scaled = ab_tensor_sums_of(c->facts.cell, "tensors", "weight_gradient", true),
                         given = ab_tensor_sums_of(c->facts.cell, "unscaled_gradients", "", true);
    const double raw = sqrt(scaled.energy) / c->facts.skip.least_scale;
    const double kept = sqrt(given.energy) / rightly_clipped(c, raw, norm, value);
    const bool ends = micro == 1 && given.energy > 0 && ends_at_scaled_limit(c, value);
    *clipped = kept < c->facts.limits->clip_kept / micro || ends; /* false if there are no energies */
    return kept;
}

static void say_limit(const ab_case *c, double limit, ab_verdict *verdict) {
    char scale[AB_TEXT_NUMBER];
    ab_verdict_add_evidence(verdict, "at scale %s a limit of %.3g acts as one of %.3g",
                            ab_text_scale(scale, c->facts.skip.last_scale), limit,
                            limit / c->facts.skip.last_scale);
    ab_verdict_point(&c->facts, verdict, "/scale");
}

/* `steps`: use only the comparison per step, which holds if the scale changed. */
static bool find(const ab_case *c, bool steps, ab_verdict *verdict) {
    const double norm = ab_json_number(c->facts.document, "config.clip_norm", 0),
                 value = ab_json_number(c->facts.document, "config.clip_value", 0);
    if (norm <= 0 && value <= 0) return false;
    const double micro = fmax(1, ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1));
    const norms each = norm > 0 && micro == 1 ? compare_norms(c, norm) : (norms){0, 0, 1};
    bool clipped = false;
    const double kept = kept_of(c, micro, norm, value, &clipped);
    if (!are_low(c, &each) && (steps || !clipped)) return false;
    char scale[AB_TEXT_NUMBER];
    /* updates as large as O0's, of Adam for example, are not what makes a cell fall behind */
    verdict->proof =
        ab_updates_are_known(c) && !ab_updates_are_small(c) ? AB_PROOF_CONSISTENT : AB_PROOF_COMPARED;
    verdict->own = true;
    verdict->since = 0;
    if (are_low(c, &each))
        ab_verdict_add_evidence(
            verdict,
            "in %d of %d probed intervals gradients reach the optimizer with less of their norm than a "
            "limit of %.3g leaves, down to %.2g of it",
            each.low, each.columns, norm, each.least);
    else
        ab_verdict_add_evidence(
            verdict,
            "between the backward pass and the optimizer gradients shrink by %.3g more than the loss "
            "scale %s and the "
            "limit account for: they are clipped while they carry it",
            1 / kept, ab_text_scale(scale, c->facts.skip.last_scale));
    ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    say_limit(c, norm > 0 ? norm : value, verdict);
    return true;
}

/* A probe in somebody else's loop saw the order of the calls itself. That says nothing of gradients which a
 * line divided by the scale before: then the limit is right, and the second division is the mistake
 * (unscale_order_in_accumulation). And a limit that no norm ever reached, scaled as it was, changed nothing.
 */
static bool clips_scaled(const ab_case *c, const cJSON *group) {
    const bool normed = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(group, "norm_largest"));
    return 2 * ab_json_number(group, "clipped_before_unscale", 0) > ab_json_number(group, "steps", 0) &&
           !ab_is_stated(c, "unscaled_by_hand") && !(normed && ab_json_number(group, "clipped", 0) == 0);
}

static bool seen_by_probe(const ab_case *c, ab_verdict *verdict) {
    const cJSON *group;
    cJSON_ArrayForEach(group, ab_json_at(ab_loop_document(&c->facts), "probe.groups")) {
        const double steps = ab_json_number(group, "steps", 0),
                     clipped = ab_json_number(group, "clipped_before_unscale", 0);
        if (!clips_scaled(c, group)) continue;
        ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
        ab_verdict_add_evidence(verdict,
                                "at %.0f of %.0f steps gradients were clipped before they were unscaled",
                                clipped, steps);
        return true;
    }
    return false;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return seen_by_probe(c, verdict) || (is_affected(c) && find(c, false, verdict));
}

/* Sums over all steps are compared only if the scale never changed: then both are sums over the same steps
 * with the same factor. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return seen_by_probe(c, verdict) ||
           find(c, c->facts.skip.least_scale != c->facts.skip.largest_scale, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_no_fault(&c->facts, "clip_before_unscale", remedy))
        ab_remedy_add_text(remedy, "unscale the gradients, then clip them");
}

const ab_verdict_rule ab_verdict_rule_clip_before_unscale = {
    .id = "clip_before_unscale",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients are clipped before the loss scale is taken out",
    .needs = {&ab_need_gradients, &ab_need_unscaled},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_no_scale},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
