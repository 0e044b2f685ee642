/* Overflow of an op of the forward pass: which kind of op, and the verdict of its cause. What is beyond
 * fp32's range too is no overflow of a half format. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_OVERFLOW_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_OVERFLOW_H

#include "reports/diagnose/attribute/verdict.h"

AB_BEGIN_DECLS

/* The kind of op that overflowed in the forward pass of a cell whose O0 trains correctly. */
typedef enum ab_overflow_kind {
    AB_OVERFLOW_NONE,
    AB_OVERFLOW_ATTENTION, /* a product that a softmax reads, a mask added to it, or attention itself */
    AB_OVERFLOW_NORM,      /* a norm, or the squares and means whose root divides */
    AB_OVERFLOW_EXP_LOG,
    AB_OVERFLOW_REDUCTION,
    AB_OVERFLOW_WEIGHT,
    AB_OVERFLOW_DATA,      /* a cast of inputs or targets before the training: no pass of the net */
    AB_OVERFLOW_MASK,      /* an additive mask, no product of weights, that left a softmax rows of -inf */
    AB_OVERFLOW_GRADIENTS, /* a sum of gradients that a loop makes itself: no pass of the net */
    AB_OVERFLOW_FORMULA, /* no overflow of half: the formula has no value at its rounded input, or in fp32 */
    AB_OVERFLOW_ACTIVATION /* any other */
} ab_overflow_kind;
ab_overflow_kind ab_overflow_of(const ab_case *c, ab_first_nonfinite *first);

/* Fills the verdict of an overflow of that kind; false if there is none or of another kind. */
bool ab_judge_overflow(const ab_case *c, ab_overflow_kind kind, ab_verdict *verdict);

/* The same for a cell without symptoms: true only if the record holds an overflow of the first step and the
 * first loss differs from O0's by more than rounding. */
bool ab_show_overflow(const ab_case *c, ab_overflow_kind kind, ab_verdict *verdict);

/* What contradicts an overflow of the forward pass: an O0 that is unstable too, sums in half whose result
 * fits, running statistics. */
extern const ab_refutation ab_refuted_rate, ab_refuted_fits, ab_refuted_statistics;

/* Keeps the layer in fp32. */
void ab_remedy_of_overflow(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy);

AB_END_DECLS

#endif
