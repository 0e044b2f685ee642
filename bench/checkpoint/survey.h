/* What a checkpoint proves of the precision it was trained in: zeros in second moments, epsilon beside their
 * roots, weights beyond fp16, and which updates the next step loses in the weights' own format.
 *
 * The update is Adam's: lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), and lr * decay * w beside
 * it where the decay is decoupled (Kingma and Ba 2015; Loshchilov and Hutter 2019), in double. It is lost if
 * w minus it rounds to w. */
#ifndef AB_BENCH_CHECKPOINT_SURVEY_H
#define AB_BENCH_CHECKPOINT_SURVEY_H

#include "bench/checkpoint/checkpoint.h"

AB_BEGIN_DECLS

/* Of the moments of one parameter. */
typedef struct ab_checkpoint_account {
    int64_t count;
    int64_t zero;      /* v = 0 although m is not: there was a gradient */
    int64_t below_eps; /* 0 < sqrt(v^) < eps */
    bool judged;       /* the following are known: the weight is in a half format, and the rate is not 0 */
    int64_t nonzero, lost;      /* updates */
    double energy, lost_energy; /* sums of squares */
} ab_checkpoint_account;

/* Of two checkpoints of one run, the weights that have moments (all, if none has). */
typedef struct ab_checkpoint_motion {
    int64_t elements, moved;
    int tensors, still; /* still: not one element moved */
} ab_checkpoint_motion;

/* The format that most weights are stored in; that of the moments; NULL: there are none. */
const ab_format *ab_checkpoint_weights_format(const ab_checkpoint *checkpoint);
const ab_format *ab_checkpoint_moments_format(const ab_checkpoint *checkpoint);

/* The names of the elements of a weight and of moments are those of elements.def. */
AB_MUST_CHECK ab_status ab_checkpoint_account_of(const ab_checkpoint *checkpoint, int moments,
                                                 ab_checkpoint_account *account);

/* Weights that fp16 cannot hold: finite, and infinite or NaN ones. */
AB_MUST_CHECK ab_status ab_checkpoint_beyond_half(const ab_checkpoint *checkpoint, int64_t *beyond,
                                                  int64_t *nonfinite);

/* What moved from `before` to `after`, by the names of weights. AB_NOT_COMPARABLE if they have none in
 * common.
 */
AB_MUST_CHECK ab_status ab_checkpoint_motion_of(const ab_checkpoint *before, const ab_checkpoint *after,
                                                ab_checkpoint_motion *motion);

AB_END_DECLS

#endif
