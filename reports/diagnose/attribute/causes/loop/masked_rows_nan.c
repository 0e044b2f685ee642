/* Rows of an attention whose mask excludes every key: the softmax of a row of -inf is 0/0 in every format,
 * and one such row makes all gradients NaN. The loop states how many there are (masked_rows). */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/overflow.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

/* The number that hides a key became -inf in the half format, and the softmax of a row that has a key left
 * would be finite. */
static bool mask_overflows(const ab_case *c, ab_verdict *verdict) {
    if (!c->nonfinite || !ab_judge_overflow(c, AB_OVERFLOW_MASK, verdict)) return false;
    ab_verdict_add_evidence(
        verdict,
        "it reads no product of weights, so it is a mask, and a softmax has read %.0f rows "
        "of nothing but its -inf",
        ab_stated_of(&c->facts, "hidden_rows").largest);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (mask_overflows(c, verdict)) return true;
    const ab_stated rows = ab_stated_of(&c->facts, "masked_rows");
    if (!rows.known || !(rows.largest > 0)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, rows.first_step);
    ab_text_clean(verdict->layer, sizeof verdict->layer, rows.place);
    ab_verdict_add_evidence(
        verdict, "%.0f rows of the attention %s are NaN from finite inputs: their mask excludes every key",
        rows.largest, ab_text_brief(rows.place, 80));
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", rows.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "let every row see one key, or set the outputs of such rows to 0");
}

static bool finite(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    int place = 0;
    return c->facts.loss.nonfinite == 0 && c->facts.skip.skipped == 0 && !ab_loop_overflow(&c->facts, &place);
}

static const ab_refutation refuted_finite = {"losses and gradients are finite: nothing reads those rows",
                                             finite};

const ab_verdict_rule ab_verdict_rule_masked_rows_nan = {
    .id = "masked_rows_nan",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_FORWARD,
    .text = "an attention has rows whose mask excludes every key",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_finite},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
