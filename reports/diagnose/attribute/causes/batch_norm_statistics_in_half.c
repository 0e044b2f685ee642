/* Batch norm in the half format: its statistics and affine parameters lose precision that keep_batchnorm_fp32
 * would keep. Indirect evidence, so it ranks below causes with counts. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const char *first_batch_norm(const ab_case *c) {
    const cJSON *op;
    const ab_graph graph = ab_graph_of(c->facts.document, ab_json_at(c->facts.cell, "implementations"));
    cJSON_ArrayForEach(op, graph.ops) {
        if (ab_graph_traits(&graph, op) & AB_TRAIT_running_statistics) return ab_json_text(op, "op", "");
    }
    return NULL;
}

/* Only the running statistics are in half; only evaluation reads them. */
static bool judge_running(const ab_case *c, const char *layer, ab_verdict *verdict) {
    verdict->proof = AB_PROOF_COMPARED;
    ab_text_clean(verdict->layer, sizeof verdict->layer, layer);
    ab_verdict_add_evidence(verdict, "test loss %.4g beside a training loss of %.4g",
                            ab_facts_test_loss(&c->facts, c->facts.cell), c->facts.loss.final);
    ab_verdict_point(&c->facts, verdict, "/test_loss");
    ab_verdict_add_evidence(verdict,
                            "running means and variances, which only evaluation reads, are kept in %s",
                            ab_text_brief(ab_facts_statistics_format(&c->facts), 12));
    ab_verdict_point(&c->facts, verdict, "/policy");
    return true;
}

/* Its test loss exceeds its training loss by more than O0's does and a gap may be. */
static bool evaluates_worse(const ab_case *c) {
    const double own = ab_facts_test_loss(&c->facts, c->facts.cell) - c->facts.loss.final,
                 o0 = ab_facts_test_loss(&c->facts, c->facts.baseline) - c->facts.baseline_loss.final;
    return own - o0 > c->gap_limit;
}

/* A frozen batch norm reads them in training too. */
static bool judge_frozen(const ab_case *c, ab_verdict *verdict) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    if (!ab_first_is_statistics(&first) || strcmp(first.format, c->facts.half->name) != 0) return false;
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = first.step;
    verdict->own = first.step == 0;
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    ab_verdict_add_evidence(verdict,
                            "%s, in %s, is not finite; it is read in training, as the norm is frozen",
                            ab_text_brief(first.tensor, 40), c->facts.half->name);
    ab_verdict_point(&c->facts, verdict, "%s/tensor", first.pointer);
    return true;
}

/* A loop whose operations were looked at: statistics that do not follow the batches, or that are not finite
 * though the layer's outputs are, as training does not read them. */
static bool seen_by_loop(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "running_mean_lost", c->facts.limits->channels_lost,
                         "the running means are far from the batch's mean and come no nearer", verdict) ||
           (c->facts.loss.nonfinite == 0 &&
            ab_judge_lost(c, "running_statistics_nonfinite", DBL_MIN,
                          "the running statistics are not finite, which evaluation reads", verdict));
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (seen_by_loop(c, verdict)) return true;
    const char *model = ab_json_text(c->facts.cell, "policy.cast_model_type", "fp32");
    const char *layer = first_batch_norm(c);
    const bool half = strcmp(ab_facts_statistics_format(&c->facts), "fp32") != 0;
    if ((c->eval_degraded || (half && c->inaccurate && evaluates_worse(c))) && layer)
        return judge_running(c, layer, verdict);
    if (ab_case_sound_baseline(c) && judge_frozen(c, verdict)) return true;
    if (strcmp(model, c->facts.half->name) != 0 ||
        ab_json_is_true(c->facts.cell, "policy.keep_batchnorm_fp32"))
        return false;
    if (!layer || c->unlearned) return false;
    verdict->proof = AB_PROOF_CONSISTENT;
    ab_verdict_add_evidence(verdict,
                            "keep_batchnorm_fp32 is off and the network has batch norm (%s is the first)",
                            ab_text_brief(layer, 80));
    ab_verdict_point(&c->facts, verdict, "/policy/keep_batchnorm_fp32");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_wide_statistics(&c->facts, remedy) && !ab_remedy_wide_batch_norm(&c->facts, remedy))
        ab_remedy_add_text(remedy, "keep running statistics in fp32, in checkpoints too");
}

static bool no_weights(const ab_case *c, const ab_verdict *verdict) {
    return c->nonfinite && verdict->since == AB_STEP_UNKNOWN;
}

static const ab_refutation refuted_no_weights = {"the losses are NaN or inf, so the evaluation is too",
                                                 no_weights};

static bool wide(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return strcmp(ab_facts_statistics_format(&c->facts), "fp32") == 0 &&
           !ab_is_stated(c, "running_mean_lost") && !ab_is_stated(c, "running_statistics_nonfinite");
}

static const ab_refutation refuted_wide = {"running statistics are kept in fp32", wide};

const ab_verdict_rule ab_verdict_rule_batch_norm_statistics_in_half = {
    .id = "batch_norm_statistics_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_ASIDE,
    .text = "batch norm keeps its statistics in the half format",
    .needs = {&ab_need_o0},
    .predicts = AB_SYMPTOMS_OF_CELL | AB_SYMPTOM_EVALUATION,
    .refuted_by = {&refuted_no_weights, &refuted_wide},
    .judge = judge,
    .shows = seen_by_loop,
    .remedy = remedy,
};
