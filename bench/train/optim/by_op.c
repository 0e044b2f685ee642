/* torch's operations on half tensors, one function each: n fp32 values that are numbers of `format`, computed
 * in fp32 and rounded once. Scalars that torch converts to the tensors' type first (alpha of add_, the number
 * of add_) are rounded too; those of mul_, div_, lerp_, addcmul_ and addcdiv_ are fp32. Then the optimizers
 * as torch writes them (torch/optim/sgd.py, adam.py: _single_tensor_*). */
#include "bench/train/optim/by_op.h"

#include "kernels/format/convert.h"

#include <math.h>
#include <string.h>

enum { BLOCK = AB_UPDATE_BLOCK };

static void round_all(const ab_format *format, float *y, int64_t n) {
    float room[BLOCK];
    ab_narrow(room, format, y, n);
    ab_widen(y, room, format, n);
}

static float rounded(const ab_format *format, double number) {
    float value = (float)number;
    round_all(format, &value, 1);
    return value;
}

/* y = y + alpha x (add_), as the last operation of a step: not rounded here, so that observers see what
 * storing the weight rounds. */
static void op_step(const ab_format *format, float *y, double alpha, const float *x, int64_t n) {
    const float factor = rounded(format, alpha);
    for (int64_t i = 0; i < n; i++) y[i] += factor * x[i];
}

/* y = y + alpha x (add_) */
static void op_add(const ab_format *format, float *y, double alpha, const float *x, int64_t n) {
    op_step(format, y, alpha, x, n);
    round_all(format, y, n);
}

static void op_add_number(const ab_format *format, float *y, double number, int64_t n) {
    const float term = rounded(format, number);
    for (int64_t i = 0; i < n; i++) y[i] += term;
    round_all(format, y, n);
}

static void op_scale(const ab_format *format, float *y, double factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] *= (float)factor;
    round_all(format, y, n);
}

static void op_divide(const ab_format *format, float *y, double divisor, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] /= (float)divisor;
    round_all(format, y, n);
}

static void op_root(const ab_format *format, float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = sqrtf(x[i]);
    round_all(format, y, n);
}

/* y = y + weight (x - y) (lerp_): torch starts at the end that is nearer (ATen/native/Lerp.h), with a fused
 * multiply-add. */
static void op_lerp(const ab_format *format, float *y, const float *x, double weight, int64_t n) {
    const float share = (float)weight;
    const bool near = fabsf(share) < 0.5f;
    for (int64_t i = 0; i < n; i++) y[i] = fmaf(near ? share : share - 1.0f, x[i] - y[i], near ? y[i] : x[i]);
    round_all(format, y, n);
}

/* y = y + value x x (addcmul_) */
static void op_add_square(const ab_format *format, float *y, double value, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += (float)value * x[i] * x[i];
    round_all(format, y, n);
}

/* y = y + value a / b (addcdiv_), the last operation: not rounded here. */
static void op_step_quotient(float *y, double value, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += (float)value * a[i] / b[i];
}

/* ---- torch.optim.SGD ------------------------------------------------------------------------- */

/* d = g + wd w in `d`. */
static void decayed(const ab_optimizer_config *config, const ab_format *format, const float *weight,
                    const float *grad, float *d, int64_t n) {
    memcpy(d, grad, (size_t)n * sizeof *d);
    if (config->weight_decay != 0) op_add(format, d, config->weight_decay, weight, n);
}

void ab_optimizer_sgd_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                            float *weight, const float *grad, float *const *state, int64_t n) {
    float d[BLOCK];
    (void)taken;
    (void)state;
    decayed(config, format, weight, grad, d, n);
    op_step(format, weight, -config->lr, d, n);
}

/* The new buffer; d: the decayed gradient. */
static void advance(const ab_optimizer_config *config, int64_t taken, const ab_format *format, float *buffer,
                    const float *d, int64_t n) {
    if (taken == 1) {
        memcpy(buffer, d, (size_t)n * sizeof *d);
        return;
    }
    op_scale(format, buffer, config->momentum, n);
    op_add(format, buffer, 1.0 - config->dampening, d, n);
}

void ab_optimizer_momentum_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                                 float *weight, const float *grad, float *const *state, int64_t n) {
    float d[BLOCK];
    decayed(config, format, weight, grad, d, n);
    advance(config, taken, format, state[0], d, n);
    op_step(format, weight, -config->lr, state[0], n);
}

void ab_optimizer_nesterov_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                                 float *weight, const float *grad, float *const *state, int64_t n) {
    float d[BLOCK];
    decayed(config, format, weight, grad, d, n);
    advance(config, taken, format, state[0], d, n);
    op_add(format, d, config->momentum, state[0], n);
    op_step(format, weight, -config->lr, d, n);
}

/* ---- torch.optim.Adam and AdamW -------------------------------------------------------------- */

static void moments(const ab_optimizer_config *config, const ab_format *format, const float *grad,
                    float *const *state, int64_t n) {
    op_lerp(format, state[0], grad, 1.0 - config->beta1, n);
    op_scale(format, state[1], config->beta2, n);
    op_add_square(format, state[1], 1.0 - config->beta2, grad, n);
}

static void adam_step(const ab_optimizer_config *config, const ab_format *format, float *weight,
                      float *const *state, int64_t n) {
    float denominator[BLOCK] = {0};
    op_root(format, denominator, state[1], n);
    op_divide(format, denominator, sqrt(config->correction2), n);
    op_add_number(format, denominator, config->eps, n);
    op_step_quotient(weight, -(config->lr / config->correction1), state[0], denominator, n);
}

void ab_optimizer_adam_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                             float *weight, const float *grad, float *const *state, int64_t n) {
    float d[BLOCK];
    (void)taken;
    decayed(config, format, weight, grad, d, n);
    moments(config, format, d, state, n);
    adam_step(config, format, weight, state, n);
}

void ab_optimizer_adamw_by_op(const ab_optimizer_config *config, int64_t taken, const ab_format *format,
                              float *weight, const float *grad, float *const *state, int64_t n) {
    (void)taken;
    op_scale(format, weight, 1.0 - config->lr * config->weight_decay, n);
    moments(config, format, grad, state, n);
    adam_step(config, format, weight, state, n);
}
