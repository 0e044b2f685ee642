/* Optimizer formulas (kernels/ops/formulas.h) over arrays in fp32, fp16 or bf16, compiled once per CPU level
 * (vec_update.c). Every level gives the bits of the scalar formula.
 *
 * Internal to kernels/backend. No threading and no other formats here. */
#ifndef AB_KERNELS_BACKEND_VEC_UPDATE_H
#define AB_KERNELS_BACKEND_VEC_UPDATE_H

#include "kernels/ops/formulas.h"
#include "kernels/vec/stored.h"

AB_BEGIN_DECLS

typedef struct ab_update_operand {
    void *data; /* only read of a gradient */
    ab_stored stored;
} ab_update_operand;

/* The operands of an update of n elements; weight and state are updated in place. */
typedef struct ab_update_span {
    ab_update_operand weight;
    ab_update_operand grad; /* times `factor`, rounded: the gradient of the formula */
    ab_update_operand state[AB_UPDATE_VALUES - 1];
    ab_update_operand model; /* written: the new weight before it is rounded to `weight`; data NULL: none */
    float factor;
    int64_t n;
} ab_update_span;

typedef struct ab_vec_update {
    /* By ab_update_kind; NULL: none, or the step size needs norms of the whole parameter. c: the constants of
     * the step. */
    void (*run[AB_UPDATE_LARC + 1])(const float *c, const ab_update_span *span);
} ab_vec_update;

AB_END_DECLS

#endif
