/* Gradient clipping with torch's formulas (torch/nn/utils/clip_grad.py): by the 2-norm over all gradients,
 * and by value.
 *
 * By norm: total = |(|g1|, |g2|, ...)|; every gradient is multiplied by min(1, max / (total + 1e-6)). As in
 * torch, norms are rounded to the gradients' format: the norm of fp16 gradients is fp16; above 65504 it is
 * inf and makes all gradients 0. `format` computes norms in another. Sums of squares are in double, in an
 * order that depends only on the sizes. By value: each element is clamped to [-value, value]; NaN stays. With
 * both, the norm is clipped first. */
#ifndef AB_BENCH_TRAIN_OPTIM_CLIP_H
#define AB_BENCH_TRAIN_OPTIM_CLIP_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

typedef struct ab_clip_config {
    double norm, value;      /* 0: off */
    const ab_format *format; /* of norms; NULL: the gradients', as in torch */
} ab_clip_config;

/* Clips in place. *total: the norm before clipping (0 without clipping by norm). Gradients may be on any
 * device. */
AB_MUST_CHECK ab_status ab_clip(const ab_clip_config *config, ab_tensor *const *grad, int count,
                                double *total);

/* The 2-norm of all gradients, every norm rounded to `format`; NULL: the gradients'. Gradients may be on any
 * device. */
AB_MUST_CHECK ab_status ab_clip_total_norm(ab_tensor *const *grad, int count, const ab_format *format,
                                           double *total);

AB_END_DECLS

#endif
