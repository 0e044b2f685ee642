/* A loss scale from a log. A log does not tell gradients, but every step tells whether its largest gradient
 * was above the limit of its scale: an interval. A normal distribution of log2 of the largest gradient, with
 * a linear trend, is fitted to these intervals by maximum likelihood (expectation-maximisation; Tobin 1958,
 * Turnbull 1976 for intervals), and says how many steps overflow at any scale. What a scale flushes is not in
 * a log: only an upper limit is advised. */
#ifndef AB_REPORTS_ADVISE_ADVISE_LOG_H
#define AB_REPORTS_ADVISE_ADVISE_LOG_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_ADVISE_SCALES = 64 };

/* One step: log2 of the largest gradient lies in [low, high], of which one may be infinite. */
typedef struct ab_advise_step {
    double low, high, scale;
    bool overflowed;
} ab_advise_step;

typedef struct ab_advise_scale {
    double scale;
    int64_t steps, overflows;
    double share_low, share_high; /* 95 % interval of the share that overflows (Clopper and Pearson) */
    double expected;              /* of these steps, by the fit; NAN: none */
} ab_advise_scale;

typedef struct ab_advise_log {
    int64_t steps, overflows;
    int scales; /* those of the log, ascending; beyond AB_ADVISE_SCALES the least used are left out */
    ab_advise_scale scale[AB_ADVISE_SCALES];
    bool fitted;           /* some steps overflowed and some did not */
    double middle, spread; /* of log2 of the largest gradient, in the middle of the log; octaves */
    double drift;          /* octaves per 1000 steps */
    double alpha;          /* share of steps that may overflow */
    double limit_log2;     /* of the half format */
    int k_hi;     /* highest 2^k that is low enough; if !fitted: the highest scale seen, rounded down */
    double share; /* that overflows at 2^k_hi by the fit; if !fitted at most (95 %) */
    bool known;   /* the log has enough steps to say so */
    double asked, asked_share; /* a scale that was asked for, and its share; 0: none was */
} ab_advise_log;

/* alpha: as of ab_advise_goal; asked: a scale to predict for, or 0. AB_INPUT if there is no step, or none
 * that was taken. */
AB_MUST_CHECK ab_status ab_advise_log_make(const ab_advise_step *step, int64_t steps, double limit,
                                           double alpha, double asked, ab_advise_log *advice);

/* The share of the steps that overflows at a scale, by the fit. */
double ab_advise_log_share(const ab_advise_log *advice, double scale);

/* Prints the advice as text. */
void ab_advise_log_print(const ab_advise_log *advice, const char *path, FILE *out);

/* The document (reports/schema/log-advice-1.schema.json), owned by the caller. */
cJSON *ab_advise_log_json(const ab_advise_log *advice, const char *path);

AB_END_DECLS

#endif
