/* What the loss did in the last half of the run, in words. */
#ifndef AB_REPORTS_DIAGNOSE_TREND_H
#define AB_REPORTS_DIAGNOSE_TREND_H

#include "reports/diagnose/detect/case.h"

AB_BEGIN_DECLS

/* What the loss did in the last half of the run. */
typedef enum ab_trend {
    AB_TREND_FALLING,
    AB_TREND_CONVERGED,
    AB_TREND_SKIPPED,   /* flat because all steps were skipped */
    AB_TREND_ROUNDING,  /* flat because updates are lost to rounding */
    AB_TREND_FLUSHED,   /* flat because gradients are flushed */
    AB_TREND_RATE,      /* flat or unstable because of the learning rate */
    AB_TREND_STALLED,   /* flat for another known cause: the first verdict's */
    AB_TREND_UNLEARNED, /* flat, cause unknown */
    AB_TREND_NONFINITE,
    AB_TREND_SHORT /* too few losses */
} ab_trend;
const char *ab_trend_name(ab_trend trend);

/* The trend of a case's loss. `cause`: id of its first verdict, NULL if there is none. */
ab_trend ab_trend_of(const ab_case *c, const char *cause);

AB_END_DECLS

#endif
