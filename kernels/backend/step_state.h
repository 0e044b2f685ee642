/* What a training step decides, as data that lives where the tensors live: loss scale, skip or not, how many
 * steps were taken. A device steps it itself, so that the host need not wait for every step.
 *
 * The rule covers fixed scales and apex's dynamic one (bench/amp/scaler/scaler_apex.c, _fixed.c; a test holds
 * the two together). Other dialects are decided on the host. */
#ifndef AB_KERNELS_BACKEND_STEP_STATE_H
#define AB_KERNELS_BACKEND_STEP_STATE_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_scale_rule {
    bool dynamic; /* looks at the gradients: halves and skips on overflow, doubles after `window` clean steps
                   */
    double min_scale, max_scale; /* 0: no floor */
    int64_t window;
} ab_scale_rule;

typedef struct ab_step_state {
    double scale;
    int64_t unskipped, taken, step; /* clean steps in a row; optimizer steps; steps begun */
    int64_t batches;                /* begun; numbers the coins of dropout */
    double loss_sum,
        grad_norm; /* of the step under way: of its batches; of all gradients, where they are clipped */
    float clip_factor;
    int32_t found, skip; /* of the step under way: a scaled gradient was not finite; no update */
} ab_step_state;

/* What the host learns of a step, later. */
typedef struct ab_step_record {
    double scale;     /* in force during the step */
    double grad_norm; /* 0 without clipping by norm */
    float loss;       /* of several batches the mean */
    int32_t overflow, skipped;
} ab_step_record;

/* The start of a step, before its first micro-batch. */
static inline AB_HOST_DEVICE void ab_step_begin(ab_step_state *s) {
    s->found = s->skip = 0;
    s->loss_sum = s->grad_norm = 0;
    s->clip_factor = 1.0f;
}

/* What the loss's gradient is set to: the scale, a batch's share of the mean. */
static inline AB_HOST_DEVICE float ab_step_seed(const ab_step_state *s, int batches) {
    return (float)(s->scale * (1.0 / (double)batches));
}

/* Counts a micro-batch and adds its unscaled loss. */
static inline AB_HOST_DEVICE void ab_step_batch(ab_step_state *s, float loss) {
    s->loss_sum += (double)loss;
    s->batches++;
}

/* After the gradients have been looked at: next scale, skip, counts. */
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

/* The same with the record of the step that ends. `loss`: of its last batch. */
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
