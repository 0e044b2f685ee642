/* Optimizer formulas (kernels/ops/formulas.h) over fp32 arrays, compiled once per CPU level (vec_update.c).
 * Every level gives the bits of the scalar formula.
 *
 * Internal to kernels/backend. No threading and no stored formats here. */
#ifndef AB_KERNELS_BACKEND_VEC_UPDATE_H
#define AB_KERNELS_BACKEND_VEC_UPDATE_H

#include "kernels/ops/formulas.h"

AB_BEGIN_DECLS

/* The operands of an update of n elements; weight and state are updated in place. */
typedef struct ab_update_span {
    float *weight;
    const float *grad; /* times `factor`, rounded: the gradient of the formula */
    float factor;
    float *state[AB_UPDATE_VALUES - 1];
    int64_t n;
} ab_update_span;

typedef struct ab_vec_update {
    /* By ab_update_kind; NULL: none, or the step size needs norms of the whole parameter. c: the constants of
     * the step. */
    void (*run[AB_UPDATE_LARC + 1])(const float *c, const ab_update_span *span);
} ab_vec_update;

AB_END_DECLS

#endif
