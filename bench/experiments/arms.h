/* Numerical or optimisation? From the last good state of a sick cell, the same batches go through three arms:
 * fp32; the cell's own formats; and these with the weights rounded by chance when they are stored, which is
 * right on average. Eight restarts on different batches; when each arm leaves fp32's way, and a sign test of
 * who left sooner.
 *
 * All leave, fp32 too: optimisation or data, and the restarts that left soonest are done again in fp64
 * (double_cell.h: emulated, element by element), so that fp32 itself is not acquitted unheard. The half arm
 * alone: rounding to nearest loses updates. With chance too, but not fp32: range or magnitude. (Divergence
 * times rather than outcomes: Higham and Mary 2022 on stochastic rounding; Dodge's sign test.) */
#ifndef AB_BENCH_EXPERIMENTS_ARMS_H
#define AB_BENCH_EXPERIMENTS_ARMS_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

enum { AB_ARM_FP32, AB_ARM_LOW, AB_ARM_CHANCE, AB_ARMS };
enum { AB_ARMS_RESTARTS = 8, AB_ARMS_WINDOW = 20 };
enum { AB_ARMS_DOUBLE = 5, AB_ARMS_DOUBLE_STEPS = 80 }; /* restarts and steps of the arm in double, at most */

typedef enum ab_trouble {
    AB_TROUBLE_none,         /* no arm left fp32's way, and fp32 did not diverge */
    AB_TROUBLE_optimisation, /* fp32 diverges as well; fp64 too, where it was asked */
    AB_TROUBLE_fp32,         /* fp32 diverges, fp64 does not */
    AB_TROUBLE_rounding,     /* only the half arm leaves, rounding by chance does not */
    AB_TROUBLE_range,        /* both half arms leave, fp32 does not */
    AB_TROUBLE_unclear
} ab_trouble;

typedef struct ab_arms {
    int64_t start, horizon;                  /* step of the good state; steps of an arm */
    bool chance;                             /* the third arm exists: weights are stored in a half format */
    int64_t time[AB_ARMS_RESTARTS][AB_ARMS]; /* steps until the arm left; the horizon: it did not */
    int left[AB_ARMS];                       /* in how many restarts */
    double p_low_fp32, p_low_chance,
        p_chance_fp32; /* one-sided sign tests: the first is sooner by chance alone */
    int double_restarts,
        double_left; /* restarts in which fp32 left that were done again in double; in how many it left too */
    const char
        *double_refused; /* why there were none, in a few words; NULL: they were not asked for, or made */
    ab_trouble trouble;
} ab_arms;

const char *ab_trouble_name(ab_trouble trouble); /* "rounding" */
const char *ab_trouble_text(ab_trouble trouble); /* one line for people */

/* Runs the arms. `config`: of the cell; first_bad: step of its first loss that is no number, -1 if all are;
 * steps: of its run. */
AB_MUST_CHECK ab_status ab_arms_run(const ab_cell_config *config, int64_t first_bad, int64_t steps,
                                    ab_arms *arms);

/* The parts that are arithmetic. When `loss` left the way of `reference` for good: the first step with a loss
 * that is no number, or whose window mean is more than 5 % (and 2 % of where the reference began) above the
 * reference's and stays there; `steps` if it did not. Without a reference, or where that is no number before:
 * when its window mean exceeds 1.5 times the first one, for good. */
int64_t ab_arms_time(const float *loss, const float *reference, int64_t steps);

/* P(at least `wins` of `wins + losses` fair coins). 1 without any. */
double ab_sign_test(int wins, int losses);

/* Fills left, p_* and trouble from time. */
void ab_arms_judge(ab_arms *arms);

/* From optimisation to fp32 if a sign test says that double does not diverge where fp32 does. */
void ab_arms_judge_double(ab_arms *arms);

AB_END_DECLS

#endif
