/* Learning-rate schedules: the rate as a pure function of how often the schedule has advanced, so that a
 * resumed run needs one number to go on. A schedule is one file with a const ab_schedule and one line in
 * schedules.def. Formulas are those of torch.optim.lr_scheduler and, with warm-up, of
 * transformers.optimization (get_*_schedule_with_warmup): the file of each names its own. When it advances is
 * the step loop's matter. */
#ifndef AB_BENCH_TRAIN_SCHEDULE_SCHEDULE_H
#define AB_BENCH_TRAIN_SCHEDULE_SCHEDULE_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_schedule_config {
    double lr;                          /* the optimizer's: the highest rate */
    int64_t total;                      /* advances until the end; afterwards the last rate is kept */
    int64_t warmup;                     /* the first advances rise linearly from warmup_start * lr */
    double warmup_start;                /* 0: as transformers has it */
    int64_t step_size;                  /* of step */
    double gamma;                       /* of step: factor every step_size advances */
    double final;                       /* the rate that is reached at `total` */
    double power;                       /* of polynomial */
    double pct_start;                   /* of one_cycle: share of the rise */
    double div_factor;                  /* of one_cycle: first rate is lr / div_factor */
    double final_div_factor;            /* of one_cycle: last rate is the first / final_div_factor */
    double base_momentum, max_momentum; /* of one_cycle: at the highest rate, and at both ends */
} ab_schedule_config;

/* What is in force at a step. */
typedef struct ab_schedule_point {
    double lr;
    double momentum; /* of optimizers with momentum or beta1; < 0: not scheduled */
} ab_schedule_point;

typedef struct ab_schedule {
    const char *name, *text;
    const char *keys; /* numbers of the configuration it reads, a space before and behind each */
    /* t: advances since the warm-up; total: without the warm-up, at least 1. */
    ab_schedule_point (*at)(const ab_schedule_config *config, int64_t t, int64_t total);
} ab_schedule;

/* The rows of schedules.def, in order: i in [0, count). */
int ab_schedule_count(void);
const ab_schedule *ab_schedule_at(int i);

/* "cosine:warmup=100,final=1e-5": fills *config but for lr; what is not given takes its default, total 0.
 * AB_USAGE names the option, the keys there are and the nearest. */
AB_MUST_CHECK ab_status ab_schedule_parse(const char *text, const ab_schedule **schedule,
                                          ab_schedule_config *config);

/* Checks what needs the length of the run: total > 0 and warmup < total. */
AB_MUST_CHECK ab_status ab_schedule_check(const ab_schedule *schedule, const ab_schedule_config *config);

/* The rate at a step that `advanced` advances precede. */
ab_schedule_point ab_schedule_rate(const ab_schedule *schedule, const ab_schedule_config *config,
                                   int64_t advanced);

AB_END_DECLS

#endif
