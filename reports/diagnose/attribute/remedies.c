/* The remedies of ordered verdicts. */
#include "reports/diagnose/attribute/verdict.h"

void ab_add_remedies(const ab_case *c, ab_verdict *v, int count) {
    for (int i = 0; i < count; i++) v[i].rule->remedy(c, &v[i], &v[i].remedy);
    for (int i = 1; i < count; i++)
        if (v[i].remedy.with_others && !v[i].effect)
            ab_remedy_join(&v[0].remedy, &v[i].remedy, v[i].rule->id);
}
