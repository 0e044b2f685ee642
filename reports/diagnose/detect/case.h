/* Whether a cell trains as O0 does: healthy, sick, or undecided. Reads facts, knows no cause. */
#ifndef AB_REPORTS_DIAGNOSE_DETECT_CASE_H
#define AB_REPORTS_DIAGNOSE_DETECT_CASE_H

#include "reports/diagnose/facts/facts.h"

AB_BEGIN_DECLS

/* What is wrong with a cell, beside the facts that show it. */
typedef struct ab_case {
    ab_facts facts;
    double gap_limit;   /* loss gap to O0 that is allowed; NAN: not known */
    double gap_chance;  /* the part of it that chance explains; the rest is being a few steps late */
    bool nonfinite;     /* some losses are NaN or inf */
    bool skipping;      /* skipped a large share (skipping_share) of the steps after the first quarter */
    bool behind;        /* gap > gap_limit */
    bool unlearned;     /* O0 itself ended no better than it began, or non-finite */
    bool idle;          /* a loop without O0: its own loss did not fall, or not below a constant's */
    bool diverged;      /* O0's losses: some non-finite, or far above the first */
    bool lr_unstable;   /* O0 learns little: updates large relative to its weights, or its loss rose */
    bool stuck;         /* the average of the weights stopped following them and scores worse */
    bool inaccurate;    /* test accuracy below O0's by more than chance */
    bool eval_degraded; /* it trains but evaluates badly: running statistics in the half format */
    bool suspect;       /* the gap alone may be noise, but the record shows its cause */
    bool misconfigured; /* the record shows a configuration mistake, with or without symptoms */
    bool sick;          /* any of the above */
    bool undecided; /* O0 or an idle loop has not learned, or the gap may be noise; no cause is known; then
                       sick is false */
} ab_case;

/* Finds the facts and the symptoms of cells[index] of a summarised document; suspect, misconfigured and
 * undecided are left to who asks the causes. AB_INPUT if the half format is unknown. */
AB_MUST_CHECK ab_status ab_case_of(const ab_cells *cells, int index, const ab_thresholds *limits, ab_case *c);

/* True if there is another cell, O0, that learned: then the fault is in this cell. */
bool ab_case_sound_baseline(const ab_case *c);

/* Training of the cell itself fails: behind O0, non-finite losses, or skipping. */
bool ab_case_fails_alone(const ab_case *c);

/* The gap is above the limit several times (far_behind). */
bool ab_case_far_behind(const ab_case *c);

/* O0 of the record did not learn or diverged, so the half format is not the cause. */
bool ab_baseline_fails(const ab_case *c);
/* O0 of the record is finite and did not learn, and the cell has no non-finite losses and no excess skips. */
bool ab_baseline_is_flat(const ab_case *c);

AB_END_DECLS

#endif
