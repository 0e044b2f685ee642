/* The remedies of ordered verdicts, and the run that decides between two. */
#include "reports/diagnose/attribute/verdict.h"

#include <string.h>

static bool same_options(const ab_remedy *a, const ab_remedy *b) {
    if (a->options != b->options) return false;
    for (int i = 0; i < a->options; i++)
        if (strcmp(a->option[i], b->option[i]) != 0) return false;
    return true;
}

/* A remedy without options is no run; where both have the same, the run would be healthy in either case. */
static void decide(const ab_verdict *v, int count, ab_decision *decision) {
    *decision = (ab_decision){.count = 0};
    if (count < 2 || v[1].rank != AB_RANK_POSSIBLE || same_options(&v[0].remedy, &v[1].remedy)) return;
    const int by = v[0].remedy.options > 0 ? 0 : 1;
    *decision = (ab_decision){
        .count = 2, .between = {v[0].rule->id, v[1].rule->id}, .healthy_if = by, .remedy = v[by].remedy};
}

void ab_add_remedies(const ab_case *c, ab_verdict *v, int count, ab_decision *decision) {
    for (int i = 0; i < count; i++)
        if (v[i].rule->remedy) v[i].rule->remedy(c, &v[i], &v[i].remedy);
    decide(v, count, decision);
    for (int i = 1; i < count; i++)
        if (v[i].remedy.with_others && v[i].rank != AB_RANK_CONSEQUENCE)
            ab_remedy_join(&v[0].remedy, &v[i].remedy, v[i].rule->id);
    /* where O0 has not learned yet, nothing tells whether the cell is healthy then */
    if (count > 0 && c->unlearned && v[0].rule->family != AB_FAMILY_TRAINING)
        (void)ab_remedy_more_steps(&c->facts, &v[0].remedy);
    for (int i = 0; i < count; i++)
        ab_remedy_for_framework(&c->facts, v[i].rule->id, v[i].layer, &v[i].remedy);
}
