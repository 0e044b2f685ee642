/* The remedies of ordered verdicts. */
#include "reports/diagnose/attribute/verdict.h"

void ab_add_remedies(const ab_case *c, ab_verdict *v, int count) {
    for (int i = 0; i < count; i++)
        if (v[i].rule->remedy) v[i].rule->remedy(c, &v[i], &v[i].remedy);
    for (int i = 1; i < count; i++)
        if (v[i].remedy.with_others && !v[i].effect)
            ab_remedy_join(&v[0].remedy, &v[i].remedy, v[i].rule->id);
    /* where O0 has not learned yet, nothing tells whether the cell is healthy then */
    if (count > 0 && c->unlearned && v[0].rule->family != AB_FAMILY_TRAINING)
        (void)ab_remedy_more_steps(&c->facts, &v[0].remedy);
}
