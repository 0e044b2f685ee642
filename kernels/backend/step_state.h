/* State of a training step, stored on the device of the tensors: loss scale, skip flag, number of steps
 * taken. The device advances it, so that the host need not synchronise every step.
 *
 * The rule covers fixed scales and apex's dynamic one (bench/amp/scaler/scaler_apex.c, _fixed.c; a test
 * compares the two). Other dialects are decided on the host. */
#ifndef AB_KERNELS_BACKEND_STEP_STATE_H
#define AB_KERNELS_BACKEND_STEP_STATE_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_scale_rule {
    bool dynamic; /* checks the gradients: halves and skips on overflow, doubles after `window` clean steps
                   */
    double min_scale, max_scale; /* min_scale 0: no lower bound */
    int64_t window;
} ab_scale_rule;

typedef struct ab_step_state {
    double scale;
    int64_t unskipped, taken, step; /* clean steps in a row; optimizer steps; steps begun */
    int64_t batches;                /* batches begun; part of the dropout mask's counter */
    double loss_sum,
        grad_norm; /* of the current step: loss sum over its batches; norm of all gradients if clipped */
    float clip_factor;
    int32_t found, skip; /* of the current step: a scaled gradient was non-finite; no update */
} ab_step_state;

/* The record of a step, read later by the host. */
typedef struct ab_step_record {
    double scale;     /* in force during the step */
    double grad_norm; /* 0 without clipping by norm */
    float loss;       /* mean over several batches */
    int32_t overflow, skipped;
} ab_step_record;

/* The start of a step, before its first micro-batch. */
static inline AB_HOST_DEVICE void ab_step_begin(ab_step_state *s) {
    s->found = s->skip = 0;
    s->loss_sum = s->grad_norm = 0;
    s->clip_factor = 1.0f;
}

/* Initial value of the loss gradient: the scale divided by the number of batches. */
static inline AB_HOST_DEVICE float ab_step_seed(const ab_step_state *s, int batches) {
    return (float)(s->scale * (1.0 / (double)batches));
}

/* Counts a micro-batch and adds its unscaled loss. */
static inline AB_HOST_DEVICE void ab_step_batch(ab_step_state *s, float loss) {
    s->loss_sum += (double)loss;
    s->batches++;
}

/* After the gradients were checked: sets next scale, skip and counts. */
static inline AB_HOST_DEVICE void ab_step_decide(const ab_scale_rule *rule, ab_step_state *s) {
    bool overflow = rule->dynamic && s->found;
    if (overflow) {
        s->scale /= 2;
        if (rule->min_scale > s->scale) s->scale = rule->min_scale;
        s->unskipped = 0;
    } else {
        s->unskipped++;
    }
    if (rule->dynamic && s->unskipped == rule->window) {
        s->scale = s->scale * 2 < rule->max_scale ? s->scale * 2 : rule->max_scale;
        s->unskipped = 0;
    }
    s->skip = overflow;
    s->taken += !overflow;
    s->step++;
}

/* The same; also returns the record of the step. `loss`: that of its last batch. */
static inline AB_HOST_DEVICE ab_step_record ab_step_end(const ab_scale_rule *rule, ab_step_state *s,
                                                        float loss, int batches) {
    ab_step_record r;
    r.scale = s->scale;
    r.grad_norm = s->grad_norm;
    r.loss = batches > 1 ? (float)(s->loss_sum / (double)batches) : loss;
    r.overflow = rule->dynamic && s->found;
    ab_step_decide(rule, s);
    r.skipped = s->skip;
    return r;
}

AB_END_DECLS

#endif
