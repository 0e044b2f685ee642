/* Which of several verdicts is the cause of the others. Reads verdicts only, not the record.
 *
 * Each rule checks one cause independently: huge updates end in an overflow, and both rules fire. A verdict
 * that starts later, and that fp32's numbers do not show too, may be a consequence of an earlier one: its
 * confidence is then capped below that of the cause, and it is sorted after it. Within one step the order is
 * forward, backward, update. */
#include "reports/diagnose/attribute/verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool comes_before(const ab_verdict *a, const ab_verdict *b) {
    return a->since < b->since || (a->since == b->since && a->rule->acts < b->rule->acts);
}

static bool explains(const ab_thresholds *t, const ab_verdict *cause, const ab_verdict *effect) {
    if (cause->since == AB_STEP_UNKNOWN || effect->since == AB_STEP_UNKNOWN || effect->own) return false;
    return cause->rule->acts != AB_ACTS_ASIDE && cause->confidence >= t->explains &&
           comes_before(cause, effect);
}

static int by_time(const void *a, const void *b) {
    const ab_verdict *x = a, *y = b;
    if (x->since != y->since) return x->since < y->since ? -1 : 1;
    if (x->rule->acts != y->rule->acts) return x->rule->acts < y->rule->acts ? -1 : 1;
    return strcmp(x->rule->id, y->rule->id);
}

static int by_confidence(const void *a, const void *b) {
    const ab_verdict *x = a, *y = b;
    if (x->next != y->next) return x->next ? 1 : -1;
    if (x->confidence != y->confidence) return x->confidence < y->confidence ? 1 : -1;
    return strcmp(x->rule->id, y->rule->id);
}

int ab_order_verdicts(const ab_thresholds *t, ab_verdict *v, int count) {
    qsort(v, (size_t)count, sizeof *v, by_time);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            if (k == i || !explains(t, &v[i], &v[k])) continue;
            v[k].confidence = fmin(v[k].confidence, v[i].confidence - t->step_down);
            v[k].effect = true;
        }
    qsort(v, (size_t)count, sizeof *v, by_confidence);
    return count > 0 && v[0].next ? 0 : count;
}
