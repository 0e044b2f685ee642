/* Which of several verdicts is the cause of the others. Reads verdicts only, not the record.
 *
 * Each rule checks one cause independently: huge updates end in an overflow, and both rules fire. What is
 * said first is decided by time and by what would be there without it:
 *
 * 1. What the record has not seen yet comes last.
 * 2. A consequence comes after the causes. A verdict is one if another verdict acts earlier (an earlier step,
 *    or within a step an earlier part of the chain ab_acts), the record shows that one, and this one would
 * not be there without it (not `own`: fp32's numbers and the ledger of lost updates do not show it).
 * 3. What is only consistent with the record comes after what the record shows.
 * 4. A cause that leaves a symptom unexplained comes after one that predicts all of them.
 * 5. The earlier one comes first; what training does not read comes last. */
#include "reports/diagnose/attribute/verdict.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *ab_proof_name(ab_proof proof) {
    static const char *const names[] = {"none", "shown", "compared", "consistent"};
    return names[proof];
}

const char *ab_rank_name(ab_rank rank) {
    static const char *const names[] = {"first", "also possible", "consequence", "next"};
    return names[rank];
}

static bool comes_before(const ab_verdict *a, const ab_verdict *b) {
    return a->since < b->since || (a->since == b->since && a->rule->acts < b->rule->acts);
}

static bool explains(const ab_verdict *cause, const ab_verdict *effect) {
    if (cause->since == AB_STEP_UNKNOWN || effect->since == AB_STEP_UNKNOWN || effect->own) return false;
    return cause->rule->acts != AB_ACTS_ASIDE && cause->proof != AB_PROOF_CONSISTENT && !cause->next &&
           comes_before(cause, effect);
}

static ab_rank rank_of(const ab_verdict *list, int count, const ab_verdict *v) {
    if (v->next) return AB_RANK_NEXT;
    for (int i = 0; i < count; i++)
        if (&list[i] != v && explains(&list[i], v)) return AB_RANK_CONSEQUENCE;
    return AB_RANK_POSSIBLE;
}

static int step_of(const ab_verdict *v) {
    return v->rule->acts == AB_ACTS_ASIDE || v->since == AB_STEP_UNKNOWN ? INT_MAX : v->since;
}

static int compare(int a, int b) { return (a > b) - (a < b); }

static int by_rank(const void *a, const void *b) {
    const ab_verdict *x = a, *y = b;
    const int by[] = {compare((int)x->rank, (int)y->rank),
                      compare(x->proof == AB_PROOF_CONSISTENT, y->proof == AB_PROOF_CONSISTENT),
                      compare(x->unexplained != 0, y->unexplained != 0), compare(step_of(x), step_of(y)),
                      compare((int)x->rule->acts, (int)y->rule->acts)};
    for (size_t i = 0; i < AB_COUNT_OF(by); i++)
        if (by[i]) return by[i];
    return strcmp(x->rule->id, y->rule->id);
}

int ab_order_verdicts(ab_verdict *v, int count) {
    for (int i = 0; i < count; i++) v[i].rank = rank_of(v, count, &v[i]);
    qsort(v, (size_t)count, sizeof *v, by_rank);
    if (count > 0 && v[0].next) return 0;
    if (count > 0) v[0].rank = AB_RANK_FIRST;
    return count;
}
