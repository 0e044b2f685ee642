/* Learning-rate schedules: the rate as a pure function of the number of advances, so that a resumed run needs
 * only this number. A schedule is one file with a const ab_schedule and one line in schedules.def. Formulas
 * are those of torch.optim.lr_scheduler and, with warm-up, of transformers.optimization
 * (get_*_schedule_with_warmup): each file names its own. The step loop decides when the schedule advances. */
#ifndef AB_BENCH_TRAIN_SCHEDULE_SCHEDULE_H
#define AB_BENCH_TRAIN_SCHEDULE_SCHEDULE_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_schedule_config {
    double lr;               /* the optimizer's: the maximum rate */
    int64_t total;           /* number of advances until the end; then the last rate is kept */
    int64_t warmup;          /* advances of the linear rise from warmup_start * lr */
    double warmup_start;     /* 0: as in transformers */
    int64_t warmup_shift;    /* 1: step t of the warm-up has share (t + 1) / warmup, not t / warmup */
    int64_t step_size;       /* of step */
    double gamma;            /* of step: factor every step_size advances */
    double final;            /* the rate at `total` */
    double power;            /* of polynomial */
    double pct_start;        /* of one_cycle: fraction of the cycle that rises */
    double div_factor;       /* of one_cycle: first rate is lr / div_factor */
    double final_div_factor; /* of one_cycle: last rate is the first / final_div_factor */
    double base_momentum, max_momentum; /* of one_cycle: at the maximum rate, and at both ends */
} ab_schedule_config;

/* Values of one step. */
typedef struct ab_schedule_point {
    double lr;
    double momentum; /* for optimizers with momentum or beta1; < 0: not scheduled */
} ab_schedule_point;

typedef struct ab_schedule {
    const char *name, *text;
    const char *keys; /* configuration keys it reads, each preceded and followed by a space */
    /* t: advances since the warm-up; total: without the warm-up, at least 1. */
    ab_schedule_point (*at)(const ab_schedule_config *config, int64_t t, int64_t total);
} ab_schedule;

/* The rows of schedules.def, in order: i in [0, count). */
int ab_schedule_count(void);
const ab_schedule *ab_schedule_at(int i);

/* "cosine:warmup=100,final=1e-5": fills *config except lr; missing keys take their defaults, total 0.
 * AB_USAGE names the option, the valid keys and the nearest one. */
AB_MUST_CHECK ab_status ab_schedule_parse(const char *text, const ab_schedule **schedule,
                                          ab_schedule_config *config);

/* Checks that depend on the length of the run: total > 0 and warmup < total. */
AB_MUST_CHECK ab_status ab_schedule_check(const ab_schedule *schedule, const ab_schedule_config *config);

/* The rate (and momentum) after `advanced` advances. */
ab_schedule_point ab_schedule_rate(const ab_schedule *schedule, const ab_schedule_config *config,
                                   int64_t advanced);

AB_END_DECLS

#endif
