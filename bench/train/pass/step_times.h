/* Where the time of training steps goes: per node of the plan and per part of a step. A cell that is timed
 * (ab_cell_time) reads the clock after every part; one that is not pays for a comparison. */
#ifndef AB_BENCH_TRAIN_PASS_STEP_TIMES_H
#define AB_BENCH_TRAIN_PASS_STEP_TIMES_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* What is timed of a node. */
typedef enum ab_timed_pass {
    AB_TIMED_FORWARD,  /* an op or a cast; recomputed: again */
    AB_TIMED_BACKWARD, /* all its gradients */
    AB_TIMED_SUMS,     /* its gradients, cast to other formats or added to earlier ones */
    AB_TIMED_PASSES
} ab_timed_pass;

/* What is timed of a step beside its nodes. */
typedef enum ab_timed_part {
    AB_TIMED_BATCH,        /* samples read into the input tensors */
    AB_TIMED_WEIGHT_CASTS, /* half copies of fp32 weights */
    AB_TIMED_REDUCTION,    /* gradients of ranks: kept, sent, summed */
    AB_TIMED_UNSCALE,      /* gradients unscaled, checked, clipped; loss scaler */
    AB_TIMED_UPDATE,       /* optimizer */
    AB_TIMED_STATISTICS,   /* of the data: of the first steps' samples */
    AB_TIMED_OTHER,        /* loss, accuracy, statistics of every step */
    AB_TIMED_PARTS
} ab_timed_part;

/* Nanoseconds, added to by every step. The arrays and the clock are the caller's. */
typedef struct ab_step_times {
    int64_t (*now)(void);           /* nanoseconds of a monotonic clock */
    int64_t last;                   /* end of the previous part */
    int64_t *node[AB_TIMED_PASSES]; /* [plan->nodes] each */
    int64_t *part;                  /* [AB_TIMED_PARTS] */
} ab_step_times;

/* The time since the previous part belongs to `*to`. */
static inline void ab_step_times_add(ab_step_times *times, int64_t *to) {
    const int64_t now = times->now();
    *to += now - times->last;
    times->last = now;
}

/* A step begins; a part of it has ended. `times` NULL: nothing is timed. */
static inline void ab_step_times_begin(ab_step_times *times) {
    if (times) times->last = times->now();
}
static inline void ab_step_times_node(ab_step_times *times, ab_timed_pass pass, int node) {
    if (times) ab_step_times_add(times, &times->node[pass][node]);
}
static inline void ab_step_times_part(ab_step_times *times, ab_timed_part part) {
    if (times) ab_step_times_add(times, &times->part[part]);
}

AB_END_DECLS

#endif
