/* A cell's steps as a series: when the symptom began, and whether the scaler skipped as expected. */
#ifndef AB_REPORTS_DIAGNOSE_DETECT_STEPS_H
#define AB_REPORTS_DIAGNOSE_DETECT_STEPS_H

#include "reports/diagnose/detect/case.h"

AB_BEGIN_DECLS

/* The first step with a symptom: a NaN or inf loss, a skip after the first quarter of the run, or the step
 * from which the mean gap over 20 steps stays above the limit; -1: none of these. */
int ab_first_symptom(const ab_case *c);

/* The mean loss of the last quarter is below that of the quarter before by two standard errors and by half a
 * percent. */
bool ab_loss_falls(const ab_case *c);

/* Steps that a scaler skipped and how many are expected. Warm-up, until the scale first rises: one skip per
 * halving from the first scale to the largest that works. Later: one in window + 1. p_value: two-sided test
 * that the skipped steps' losses rank uniformly among those of the 16 steps around each (mean of uniform
 * ranks, normal approximation); NAN below 5 ranked steps. Gradient norms cannot be compared: they are NaN or
 * inf in steps that overflowed. */
typedef struct ab_skip_audit {
    int warm_up, later;
    double expected_warm_up, expected_later;
    bool healthy;
    int ranked;
    double mean_rank, p_value, samples_lost;
    double labels;  /* in skipped steps; 0: not known */
    double label_p; /* p-value of their classes being a random sample of all batches' (stats.h); NAN: not
                       known */
    int label;      /* the class most over-represented in skipped steps; -1: not known */
    double label_share, label_expected; /* share of that class in skipped steps and in all */
} ab_skip_audit;
ab_skip_audit ab_audit_skips(const ab_case *c);

AB_END_DECLS

#endif
