/* Which of several verdicts is the cause of the others. Reads verdicts only, not the record.
 *
 * Each rule checks one cause independently: huge updates end in an overflow, and both rules fire. A verdict
 * that starts later, and that fp32's numbers do not show too, may be a consequence of an earlier one: its
 * confidence is then capped below that of the cause, and it is sorted after it. Within one step the order is
 * forward, backward, update. */
#include "kernels/core/text.h"
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

/* ---- remedies -------------------------------------------------------------------------------- */

/* Of repeated options the last one counts, except --set with different properties. */
static bool sets(const ab_verdict *verdict, const char *const *option) {
    const bool property = strcmp(option[0], "--set") == 0;
    for (int i = 0; i < verdict->remedy.options; i += 2)
        if (strcmp(verdict->remedy.option[i], option[0]) == 0 &&
            (!property || strcmp(verdict->remedy.option[i + 1], option[1]) == 0))
            return true;
    return false;
}

/* False if the first remedy has no options: the added ones would look complete. */
static bool may_join(const ab_verdict *first, const ab_verdict *other) {
    if (first->remedy.options == 0 || !other->remedy.with_others || other->remedy.options == 0 ||
        first->remedy.options + other->remedy.options > AB_REMEDY_OPTIONS)
        return false;
    for (int i = 0; i < other->remedy.options; i += 2) {
        const char *const option[] = {other->remedy.option[i], other->remedy.option[i + 1]};
        if (sets(first, option)) return false;
    }
    return true;
}

static void join(ab_verdict *first, const ab_verdict *other) {
    const char *between = first->remedy.text[0] ? "; also" : "also";
    for (int i = 0; i < other->remedy.options; i += 2) {
        memcpy(first->remedy.option[first->remedy.options++], other->remedy.option[i], AB_REMEDY_TEXT);
        memcpy(first->remedy.option[first->remedy.options++], other->remedy.option[i + 1], AB_REMEDY_TEXT);
        ab_text_append(first->remedy.text, sizeof first->remedy.text, "%s %s %s", between,
                       other->remedy.option[i], other->remedy.option[i + 1]);
        between = "";
    }
    ab_text_append(first->remedy.text, sizeof first->remedy.text, " (%s)", other->rule->id);
}

int ab_order_verdicts(const ab_thresholds *t, ab_verdict *v, int count) {
    bool effect[AB_VERDICT_RULES] = {false};
    qsort(v, (size_t)count, sizeof *v, by_time);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++) {
            if (k == i || !explains(t, &v[i], &v[k])) continue;
            v[k].confidence = fmin(v[k].confidence, v[i].confidence - t->step_down);
            effect[k] = true;
        }
    for (int i = 0; i < count; i++) v[i].remedy.with_others = v[i].remedy.with_others && !effect[i];
    qsort(v, (size_t)count, sizeof *v, by_confidence);
    if (count > 0 && v[0].next) return 0;
    for (int i = 1; i < count; i++)
        if (may_join(&v[0], &v[i])) join(&v[0], &v[i]);
    return count;
}
