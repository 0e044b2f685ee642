/* The list of rules, and what more a document would have to say for a verdict. */
#include "reports/diagnose/attribute/verdict.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"

#define AB_VERDICT(id) extern const ab_verdict_rule ab_verdict_rule_##id;
#include "reports/diagnose/attribute/verdicts.def"
#undef AB_VERDICT

static const ab_verdict_rule *const rules[] = {
#define AB_VERDICT(id) &ab_verdict_rule_##id,
#include "reports/diagnose/attribute/verdicts.def"
#undef AB_VERDICT
};
_Static_assert(AB_COUNT_OF(rules) <= AB_VERDICT_RULES, "AB_VERDICT_RULES");

int ab_verdict_rule_count(void) { return (int)AB_COUNT_OF(rules); }
const ab_verdict_rule *ab_verdict_rule_at(int i) { return rules[i]; }

const char *ab_verdict_family_name(ab_verdict_family family) {
    static const char *const names[] = {"healthy", "precision", "configuration", "training"};
    return names[family];
}

const ab_refutation *ab_refutation_of(const ab_case *c, const ab_verdict *verdict) {
    for (int i = 0; i < AB_RULE_REFUTATIONS && verdict->rule->refuted_by[i]; i++)
        if (verdict->rule->refuted_by[i]->holds(c, verdict)) return verdict->rule->refuted_by[i];
    return NULL;
}

static bool wants(const ab_verdict_rule *rule, const ab_need *need) {
    for (int i = 0; i < AB_RULE_NEEDS && rule->needs[i]; i++)
        if (rule->needs[i] == need) return true;
    return false;
}

/* Appends the causes of these symptoms that nothing contradicts and that need a fact; returns how many. */
static int name_causes(const ab_case *c, const ab_need *need, unsigned symptoms, char *text, size_t size) {
    enum { MOST = 3 };
    int count = 0;
    for (int i = 0; i < ab_verdict_rule_count(); i++) {
        const ab_verdict verdict = {.rule = rules[i], .since = AB_STEP_UNKNOWN};
        if (!(rules[i]->predicts & symptoms) || !wants(rules[i], need) || ab_refutation_of(c, &verdict))
            continue;
        if (count < MOST) ab_text_append(text, size, "%s%s", count ? ", " : "", rules[i]->id);
        count++;
    }
    if (count > MOST) ab_text_append(text, size, " and %d more", count - MOST);
    return count;
}

void ab_missing_evidence(const ab_case *c, char *text, size_t size) {
    static const ab_need *const needs[] = {&ab_need_o0,       &ab_need_origin, &ab_need_gradients,
                                           &ab_need_unscaled, &ab_need_state,  &ab_need_signals,
                                           &ab_need_ledger,   &ab_need_vitals};
    char causes[AB_VERDICT_TEXT];
    for (size_t i = 0; i < AB_COUNT_OF(needs); i++) {
        causes[0] = '\0';
        if (needs[i]->there(c) || name_causes(c, needs[i], ab_symptoms_of(c), causes, sizeof causes) == 0)
            continue;
        ab_text_show(text, size, "%s (%s): %s", needs[i]->text, causes, ab_need_get(c, needs[i]));
        return;
    }
    ab_text_show(text, size, "%s",
                 ab_is_loop(&c->facts) ? "more: attach the probe with every=1"
                                       : "more: run with --probes all --probe-every 1");
}
