/* Decision rule of the gate for times: PASS, FAIL or INCONCLUSIVE for a family of metrics measured in
 * rounds, one value per arm and round. Works on numbers only; gate_document.c handles documents.
 * docs/decisions gives the reason for each threshold. */
#ifndef AB_REPORTS_GATE_GATE_RULE_H
#define AB_REPORTS_GATE_GATE_RULE_H

#include "reports/stats/stats.h"

AB_BEGIN_DECLS

typedef enum ab_gate_outcome { AB_GATE_PASS, AB_GATE_FAIL, AB_GATE_INCONCLUSIVE } ab_gate_outcome;

enum { AB_GATE_LOOKS = 3, AB_GATE_REASON = 256 };

/* Times of the looks and what to accept. At each look the family is judged at that look's alpha; the sum
 * of the alphas bounds the error over all looks. */
typedef struct ab_gate_rule {
    int looks, look[AB_GATE_LOOKS]; /* rounds */
    double alpha[AB_GATE_LOOKS];
    double tolerance; /* policy: a slow-down up to this fraction is accepted */
    double guard;     /* calibration: a shift up to this fraction is indistinguishable from noise */
} ab_gate_rule;

/* Looks at 12, 20 and 30 rounds at 0.02, 0.02 and 0.01; tolerance 3 %, guard 1 %. With rounds > 0: one look,
 * at 0.05. */
ab_gate_rule ab_gate_rule_standard(int rounds);

/* Element r of each array belongs to round r. Times are positive and finite. Clocks: time of a fixed
 * calibration loop, per process; loads: processors kept busy by other processes; waits: fraction of its
 * time that the process waited for a processor; NULL where not recorded. */
typedef struct ab_gate_series {
    int rounds;
    const double *base, *other;
    const double *base_clock, *other_clock, *base_load, *other_load, *base_wait, *other_wait;
    const int *unsteady; /* processes of the round that did not reach a steady state: 0 to 2; NULL: none */
    const int *round;    /* round numbers, starting at 1, if rounds are missing; NULL: none missing */
    int missing;         /* rounds without a time for one of the arms */
} ab_gate_series;

typedef struct ab_gate_decision {
    ab_gate_outcome outcome;
    bool win;       /* faster by more than the tolerance */
    int rounds;     /* of the look that decided */
    double alpha;   /* of that look */
    ab_ratio ratio; /* over those rounds; bounds at that alpha */
    double p_holm;
    double guard;      /* guard used: the rule's, or the noise of these rounds if larger */
    double detectable; /* smallest slow-down detected with 90 % power at this noise and n; display only */
    double clock;      /* ratio of the clock loop times; 0: not recorded */
    double load, wait; /* shifts of load and wait if the rounds agree on one; 0 also if not recorded */
    int outliers;      /* rounds */
    int unsteady;      /* processes */
    bool bimodal;
    char reason[AB_GATE_REASON]; /* one sentence */
} ab_gate_decision;

/* FAIL: Holm's p of "the ratio is at most 1 + guard" reaches alpha and the estimate exceeds the tolerance;
 * the guard is at least half the half-width of the interval, so a slow-down must exceed three halves of
 * its uncertainty. PASS: the upper bound is within the tolerance. Otherwise the next look. A result that
 * clock, load, bimodality, outliers or unsteady processes could explain is INCONCLUSIVE. A decided metric
 * stays decided. */
AB_MUST_CHECK ab_status ab_gate_decide(const ab_gate_rule *rule, const ab_gate_series *series, int count,
                                       ab_gate_decision *decision);

/* "PASS", "FAIL" or "INCONCLUSIVE". */
const char *ab_gate_outcome_name(ab_gate_outcome outcome);

AB_END_DECLS

#endif
