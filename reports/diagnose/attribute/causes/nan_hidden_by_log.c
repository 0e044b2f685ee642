/* A log whose losses are finite although those of the steps are not. In a log: a loss that is printed as
 * exactly 0 beside a gradient norm that is NaN. In the record of a loop: losses that are NaN or inf, and a
 * finite one that the loop says it logged. Hugging Face's Trainer replaces losses that are NaN or inf before
 * it logs them (logging_nan_inf_filter, on by default). Says nothing of why they are NaN. */
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/diagnose/facts/loop.h"

#include <math.h>

static bool is_in_log(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    if (!(v.hidden_nans > 0)) return false;
    ab_verdict_add_evidence(
        verdict, "%.0f lines have a loss of 0 and a gradient norm that is NaN, the first is line %d",
        v.hidden_nans, ab_log_line_of(&v, "hidden_line"));
    ab_verdict_point_log(verdict, "hidden_nans");
    return true;
}

/* The last loss that the loop said it logs is finite although losses are not. */
static bool is_stated(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *loss = &c->facts.loss;
    const ab_stated logged = ab_stated_of(&c->facts, "logged_loss");
    if (!logged.known || !isfinite(logged.last) || loss->nonfinite == 0) return false;
    verdict->since = loss->first_nonfinite;
    ab_verdict_add_evidence(verdict, "%d of %d losses are NaN or inf, and the log's last loss is %.4g",
                            loss->nonfinite, loss->steps, logged.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d", logged.index);
    return true;
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    verdict->proof = AB_PROOF_SHOWN;
    return is_in_log(c, verdict) || is_stated(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "the losses are NaN: set logging_nan_inf_filter=False to see them, and look for the first "
                "NaN in the forward pass (ampprobe)");
}

const ab_verdict_rule ab_verdict_rule_nan_hidden_by_log = {
    .id = "nan_hidden_by_log",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_ASIDE,
    .text = "losses that are NaN are logged as numbers",
    .needs = {&ab_need_log, &ab_need_loop},
    .predicts = AB_SYMPTOM_NONFINITE,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
