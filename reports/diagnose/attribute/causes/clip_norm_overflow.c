/* The norm that gradients are clipped by is computed in the half format, as torch does for half gradients or
 * as --clip-norm-format asks, and is beyond it: limit / infinity is 0, so every gradient becomes 0, and
 * infinite ones NaN. In the record, finite gradients reach the optimizer and no weight is updated. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Norm of a probed step's unscaled gradients, before clipping: the first step's or the root of the mean
 * square, whichever is larger. NAN: not recorded. */
static double norm_of_gradients(const cJSON *cell) {
    const double probed = ab_json_number(cell, "probes.steps_probed", (double)NAN);
    const double first = ab_tensor_sums_of(cell, "unscaled_gradients", "", false).energy,
                 all = ab_tensor_sums_of(cell, "unscaled_gradients", "", true).energy;
    return sqrt(fmax(first, all / probed));
}

/* Over all parameters. */
static double updates(const cJSON *cell) {
    const cJSON *param, *list = ab_json_at(cell, "probes.lost_updates");
    double count = list ? 0 : (double)NAN;
    cJSON_ArrayForEach(param, list) count += ab_json_number(param, "update.nonzero", 0);
    return count;
}

/* What the run was told; "gradients": their own. O0 as the reference is told nothing. */
static const char *asked_format(const ab_case *c) {
    const bool reference = ab_json_at(c->facts.cell, "policy.reference");
    return reference ? "gradients" : ab_json_text(c->facts.document, "config.clip_norm_format", "gradients");
}

static bool in_half(const ab_case *c) {
    const char *asked = asked_format(c);
    return strcmp(asked, "gradients") == 0 ? ab_facts_half_weights(&c->facts) : strcmp(asked, "half") == 0;
}

static bool norm_is_wide(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return !in_half(c);
}

static const ab_refutation refuted_wide_norm = {.text = "the norm is computed in fp32",
                                                .holds = norm_is_wide};

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const double limit = ab_json_number(c->facts.document, "config.clip_norm", 0),
                 norm = norm_of_gradients(c->facts.cell), count = updates(c->facts.cell);
    if (!(limit > 0) || !ab_case_fails_alone(c)) return false;
    if (!(norm >= ab_format_overflow_limit(c->facts.half)) || !(count == 0 || c->nonfinite)) return false;
    ab_verdict_own(verdict, count == 0 ? AB_PROOF_SHOWN : AB_PROOF_COMPARED, 0);
    ab_verdict_add_evidence(
        verdict, "the gradients' norm is %.4g; the largest number of %s, which it is computed in, is %.4g",
        norm, c->facts.half->name, ab_format_max(c->facts.half));
    ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    if (count == 0) {
        ab_verdict_add_evidence(verdict, "clipping to %.3g leaves nothing: no update is anything but 0",
                                limit);
        ab_verdict_point(&c->facts, verdict, "/probes/lost_updates");
    }
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (strcmp(asked_format(c), "half") == 0 || !ab_remedy_masters(&c->facts, remedy))
        ab_remedy_option(remedy, "compute the norm in fp32", "--clip-norm-format", "fp32");
}

const ab_verdict_rule ab_verdict_rule_clip_norm_overflow = {
    .id = "clip_norm_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the norm of half gradients is infinite, so that clipping makes them 0",
    .needs = {&ab_need_unscaled, &ab_need_ledger},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_wide_norm},
    .judge = judge,
    .remedy = remedy,
};
