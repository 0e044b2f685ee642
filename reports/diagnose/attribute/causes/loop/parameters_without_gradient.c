/* Parameters that no step changes, though others learn: an optimizer none of whose parameters ever has a
 * gradient, as that of a generator whose output was detached; the first layers of the forward pass, behind
 * which the graph is cut; a layer that replaced one which the optimizer still holds, or that is kept in a
 * plain list, so that its model does not know its parameters; or an optimizer that was made of the parameters
 * of another one. A probe states them when it has seen the whole
 * run (optimizer_without_gradients, cut_off, held_by_no_optimizer, not_registered, optimizer_of_others).
 * Where nothing is trained at all, that is weights_stand_still. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/text.h"

/* Says what the first entry of a fact names; whether there is one. `format` has the name and the steps. */
static bool say(const ab_case *c, const char *fact, const char *what, ab_verdict *verdict) {
    const ab_stated stated = ab_stated_of(&c->facts, fact);
    char more[AB_TEXT_NUMBER] = "", name[AB_VERDICT_LAYER];
    if (!stated.known) return false;
    ab_text_clean(name, sizeof name, stated.place);
    if (stated.entries > 1) ab_text_show(more, sizeof more, " and %d more", stated.entries - 1);
    ab_verdict_add_evidence(verdict, "%s%s: %s, in %.0f steps", ab_text_brief(name, 60), more, what,
                            stated.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d", stated.index);
    if (!verdict->layer[0]) ab_text_clean(verdict->layer, sizeof verdict->layer, stated.place);
    return true;
}

static bool find(const ab_case *c, ab_verdict *verdict) {
    if (ab_stated_of(&c->facts, "no_gradients").known) return false;
    const bool own = say(c, "optimizer_without_gradients", "its optimizer never has a gradient", verdict),
               cut = say(c, "cut_off", "never a gradient, though its layer runs before others that have one",
                         verdict),
               other = say(c, "held_by_no_optimizer",
                           "it has gradients and no optimizer holds it, but one that its model has no more",
                           verdict);
    const bool hidden =
        say(c, "not_registered",
            "it has gradients, but is in a plain list and none of its model's parameters()", verdict);
    const bool twice =
        say(c, "optimizer_of_others",
            "it has gradients and no optimizer holds it, but two hold the very same others", verdict);
    if (!own && !cut && !other && !hidden && !twice) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    ab_remedy_add_text(remedy, "let the gradient reach %s, or make the optimizer after the last layer",
                       verdict->layer);
}

const ab_verdict_rule ab_verdict_rule_parameters_without_gradient = {
    .id = "parameters_without_gradient",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "parameters that should be trained never change",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND | AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_first_loss},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
