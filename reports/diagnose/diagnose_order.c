/* Which of several verdicts is the cause of the others. Reads verdicts only, not the record.
 *
 * Each rule checks one cause independently: huge updates end in an overflow, and both rules fire. A verdict
 * that starts later, and that fp32's numbers do not show too, may be a consequence of an earlier one: its
 * confidence is then capped below that of the cause, and it is sorted after it. Within one step the order is
 * forward, backward, update. */
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A verdict below `sure` is too weak to explain another one. */
static const double sure = 0.5, step_down = 0.01;

static bool comes_before(const ab_verdict *a, const ab_verdict *b) {
    return a->since < b->since || (a->since == b->since && a->rule->acts < b->rule->acts);
}

static bool explains(const ab_verdict *cause, const ab_verdict *effect) {
    if (cause->since == AB_SINCE_UNKNOWN || effect->since == AB_SINCE_UNKNOWN || effect->own) return false;
    return cause->rule->acts != AB_ACTS_ASIDE && cause->confidence >= sure && comes_before(cause, effect);
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
    for (int i = 0; i < verdict->options; i += 2)
        if (strcmp(verdict->option[i], option[0]) == 0 &&
            (!property || strcmp(verdict->option[i + 1], option[1]) == 0))
            return true;
    return false;
}

/* False if the first remedy has no options: the added ones would look complete. */
static bool may_join(const ab_verdict *first, const ab_verdict *other) {
    if (first->options == 0 || !other->with_others || other->options == 0 ||
        first->options + other->options > AB_VERDICT_OPTIONS)
        return false;
    for (int i = 0; i < other->options; i += 2) {
        const char *const option[] = {other->option[i], other->option[i + 1]};
        if (sets(first, option)) return false;
    }
    return true;
}

static void join(ab_verdict *first, const ab_verdict *other) {
    const char *between = first->remedy[0] ? "; also" : "also";
    for (int i = 0; i < other->options; i += 2) {
        memcpy(first->option[first->options++], other->option[i], AB_VERDICT_TEXT);
        memcpy(first->option[first->options++], other->option[i + 1], AB_VERDICT_TEXT);
        ab_text_append(first->remedy, sizeof first->remedy, "%s %s %s", between, other->option[i],
                       other->option[i + 1]);
        between = "";
    }
    ab_text_append(first->remedy, sizeof first->remedy, " (%s)", other->rule->id);
}

void ab_order_verdicts(ab_diagnosis *d) {
    ab_verdict *v = d->verdict;
    bool effect[AB_VERDICT_RULES] = {false};
    qsort(v, (size_t)d->verdicts, sizeof *v, by_time);
    for (int i = 0; i < d->verdicts; i++)
        for (int k = 0; k < d->verdicts; k++) {
            if (k == i || !explains(&v[i], &v[k])) continue;
            v[k].confidence = fmin(v[k].confidence, v[i].confidence - step_down);
            effect[k] = true;
        }
    for (int i = 0; i < d->verdicts; i++) v[i].with_others = v[i].with_others && !effect[i];
    qsort(v, (size_t)d->verdicts, sizeof *v, by_confidence);
    if (d->verdicts > 0 && v[0].next) d->verdicts = 0;
    for (int i = 1; i < d->verdicts; i++)
        if (may_join(&v[0], &v[i])) join(&v[0], &v[i]);
}
