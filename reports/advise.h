/* Which fixed loss scale suits a run, predicted from the gradients of its record, and what a run at that scale then showed.
 *
 * The prediction needs the gradients as they are without a scale: an O0 cell, or one whose scale never changed, with its
 * histograms of exponents (powers of two; a tie at half the smallest subnormal and mantissas next to 2 are not told apart, so
 * shares are exact up to values with those exponents). High enough: in every tensor at most `flushed_share` of the non-zero values,
 * and `flushed_energy` of the sum of squares, becomes zero. Low enough: a step overflows with probability `alpha` at most, by a Gumbel
 * distribution fitted to the largest gradients of the recorded steps (scale_advice.h). */
#ifndef AB_REPORTS_ADVISE_H
#define AB_REPORTS_ADVISE_H

#include "kernels/format.h"
#include "reports/scale_advice.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum {
    AB_ADVISE_STEPS = 16 /* at least */,
    AB_ADVISE_TENSORS = 512,
    AB_ADVISE_NAME = 96,
    AB_ADVISE_K_MIN = -40,
    AB_ADVISE_K_MAX = 60
};

typedef struct ab_advise_goal {
    double flushed_share, flushed_energy, alpha;
} ab_advise_goal;

extern const ab_advise_goal
    ab_advise_usual; /* 0.001, 1e-6, 1/2000: what a growth window of 2000 pays anyway */

typedef struct ab_advise_tensor {
    char name[AB_ADVISE_NAME], layer[AB_ADVISE_NAME]; /* cleaned */
    int k_lo;                                         /* lowest 2^k that is high enough for it */
    double share, energy;                             /* flushed at the advised scale */
} ab_advise_tensor;

typedef struct ab_advise {
    const cJSON *cell; /* whose gradients were used */
    const ab_format *half;
    double base_log2; /* log2 of the scale they were recorded at */
    int tensors;
    ab_advise_tensor tensor[AB_ADVISE_TENSORS];
    int decides;          /* tensor with the largest k_lo */
    int k_lo, k_hi;       /* high enough for every tensor; low enough */
    bool feasible;        /* k_lo <= k_hi */
    int k;                /* advised: one octave below k_hi where k_lo allows it; without: k_lo */
    int steps;            /* recorded steps that the upper limit rests on */
    ab_gumbel law;        /* of log2 of the largest gradient of a step, at scale 1 */
    double overflow;      /* probability that a step overflows at 2^k */
    double share, energy; /* flushed at 2^k, all tensors together */
} ab_advise;

/* `document` is summarised; `level` names the level the advice is for, and with that which tensors are cast (those of its cell; all
 * if the document has no such cell). AB_INPUT if nothing usable was recorded: says what to run. */
AB_MUST_CHECK ab_status ab_advise_make(const cJSON *document, const char *level, const ab_advise_goal *goal,
                                       ab_advise *advise);

void ab_advise_print(const ab_advise *advise, const ab_advise_goal *goal, FILE *out);
void ab_advise_json(const ab_advise *advise, const ab_advise_goal *goal, cJSON *object);

/* What a run at the advised scale showed: the only cell but O0 of `document`, all of whose steps were probed. */
typedef struct ab_receipt {
    int steps, overflowed;          /* probed; with a gradient beyond the range */
    double expected;                /* overflowed, of as many steps */
    double low, high;               /* Clopper-Pearson interval of the share of overflowed steps, 95 % */
    bool overflow_agrees;           /* the predicted probability lies in it, or both are 0 */
    double nonzero, flushed, share; /* of all cast tensors */
    double predicted_share;
    double loss_gap; /* NAN if not known */
} ab_receipt;

AB_MUST_CHECK ab_status ab_receipt_make(const cJSON *document, const ab_advise *advise, ab_receipt *receipt);
void ab_receipt_print(const ab_receipt *receipt, FILE *out);
void ab_receipt_json(const ab_receipt *receipt, cJSON *object);

AB_END_DECLS

#endif
