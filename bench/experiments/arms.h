/* Is the problem numerical or one of optimisation? From the last good state of a failing cell, the same
 * batches are trained in three arms: fp32; the cell's own formats; and these with stochastic rounding of the
 * stored weights, which is unbiased. Eight restarts on different batches; for each arm the step at which its
 * loss leaves that of fp32, and a sign test of which arm left sooner.
 *
 * All arms leave, fp32 included: optimisation or data; the restarts that left soonest are repeated in fp64
 * (double_cell.h: emulated, element by element) to check fp32 itself. Only the half arm leaves: rounding to
 * nearest loses updates. The stochastic arm leaves too, but not fp32: range or magnitude. (Divergence times
 * rather than outcomes: Higham and Mary 2022 on stochastic rounding; Dodge's sign test.) */
#ifndef AB_BENCH_EXPERIMENTS_ARMS_H
#define AB_BENCH_EXPERIMENTS_ARMS_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

enum { AB_ARM_FP32, AB_ARM_LOW, AB_ARM_CHANCE, AB_ARMS };
enum { AB_ARMS_RESTARTS = 8, AB_ARMS_WINDOW = 20 };
enum { AB_ARMS_DOUBLE = 5, AB_ARMS_DOUBLE_STEPS = 80 }; /* maximum restarts and steps of the fp64 arm */

typedef enum ab_trouble {
    AB_TROUBLE_none,         /* no arm left the loss of fp32, and fp32 did not diverge */
    AB_TROUBLE_optimisation, /* fp32 diverges as well; so does fp64, where it was run */
    AB_TROUBLE_fp32,         /* fp32 diverges, fp64 does not */
    AB_TROUBLE_rounding,     /* only the half arm leaves, stochastic rounding does not */
    AB_TROUBLE_range,        /* both half arms leave, fp32 does not */
    AB_TROUBLE_unclear
} ab_trouble;

typedef struct ab_arms {
    int64_t start, horizon; /* step of the good state; steps of an arm */
    bool chance;            /* the stochastic arm exists: weights are stored in a half format */
    int64_t time[AB_ARMS_RESTARTS][AB_ARMS]; /* steps until the arm left; the horizon if it did not */
    int left[AB_ARMS];                       /* in how many restarts */
    double p_low_fp32, p_low_chance,
        p_chance_fp32;                /* one-sided sign tests: p value of the first arm leaving sooner */
    int double_restarts, double_left; /* restarts in which fp32 left that were repeated in fp64; in how many
                                         of them fp64 left too */
    const char *double_refused;       /* why there were none, in a few words; NULL: not requested, or run */
    ab_trouble trouble;
} ab_arms;

const char *ab_trouble_name(ab_trouble trouble); /* "rounding" */
const char *ab_trouble_text(ab_trouble trouble); /* one line for people */

/* Runs the arms. `config`: of the cell; first_bad: step of its first non-finite loss, -1 if there is none;
 * steps: of its run. */
AB_MUST_CHECK ab_status ab_arms_run(const ab_cell_config *config, int64_t first_bad, int64_t steps,
                                    ab_arms *arms);

/* The arithmetic parts. Returns the step at which `loss` left `reference` for good: the first non-finite
 * loss, or the first step from which the window mean stays more than 5 % (and 2 % of the reference's initial
 * loss) above that of the reference; `steps` if it did not leave. Without a reference, or if the reference
 * becomes non-finite earlier: the step from which the window mean stays above 1.5 times the first window
 * mean. */
int64_t ab_arms_time(const float *loss, const float *reference, int64_t steps);

/* Returns P(at least `wins` successes in `wins + losses` trials of probability 1/2); 1 for no trials. */
double ab_sign_test(int wins, int losses);

/* Computes left, p_* and trouble from time. */
void ab_arms_judge(ab_arms *arms);

/* Changes trouble from optimisation to fp32 if a sign test shows that fp64 does not diverge where fp32 does.
 */
void ab_arms_judge_double(ab_arms *arms);

AB_END_DECLS

#endif
