/* fp64 references of unary and binary pointwise functions, and of pointwise losses. */
#include "probes/element64/element64.h"

#include <float.h>

/* ---- unary functions ------------------------------------------------------------------------- */

/* Arguments of a formula; x and y are NAN if the backward pass does not have them. */
typedef struct point {
    double x, y, a, b; /* a, b: attributes */
} point;

static double exp64(double x) { return x > 709 ? DBL_MAX : exp(x); }
static double sigmoid64(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

static double neg_value(const point *p) { return -p->x; }
static double neg_slope(const point *p) { return (void)p, -1; }
static double exp_value(const point *p) { return exp64(p->x); }
static double exp_slope(const point *p) { return p->y; }
static double log_value(const point *p) { return log(p->x); }
static double log_slope(const point *p) { return 1 / p->x; }
static double sqrt_value(const point *p) { return sqrt(p->x); }
static double sqrt_slope(const point *p) { return 1 / (2 * p->y); }
static double rsqrt_value(const point *p) { return 1 / sqrt(p->x); }
static double rsqrt_slope(const point *p) { return -0.5 * p->y * p->y * p->y; }
static double square_value(const point *p) { return p->x * p->x; }
static double square_slope(const point *p) { return 2 * p->x; }
static double abs_value(const point *p) { return fabs(p->x); }
static double abs_slope(const point *p) { return (p->x > 0) - (p->x < 0); }
static double clamp_value(const point *p) { return p->x < p->a ? p->a : p->x > p->b ? p->b : p->x; }
static double clamp_slope(const point *p) { return p->x >= p->a && p->x <= p->b; }
static double scale_value(const point *p) { return p->x * p->a; }
static double scale_slope(const point *p) { return p->a; }
static double relu_value(const point *p) { return p->x > 0 ? p->x : 0; }
static double relu_slope(const point *p) { return p->y > 0; }
static double tanh_value(const point *p) { return tanh(p->x); }
static double tanh_slope(const point *p) { return 1 - p->y * p->y; }
static double sigmoid_value(const point *p) { return sigmoid64(p->x); }
static double sigmoid_slope(const point *p) { return p->y * (1 - p->y); }
static double silu_value(const point *p) { return p->x * sigmoid64(p->x); }
static double silu_slope(const point *p) {
    double s = sigmoid64(p->x);
    return s + p->x * s * (1 - s);
}
static const double root_half = 0.70710678118654752440, root_two_pi = 2.50662827463100050242;
/* The tanh form (a is not 0): 0.5 x (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_u(double x) { return 2 / root_two_pi * (x + 0.044715 * x * x * x); }
static double gelu_value(const point *p) {
    return p->a != 0 ? 0.5 * p->x * (1 + tanh(gelu_u(p->x))) : p->x * 0.5 * erfc(-p->x * root_half);
}
static double gelu_slope(const point *p) {
    const double x = p->x, t = tanh(gelu_u(x));
    if (p->a != 0) return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 2 / root_two_pi * (1 + 0.134145 * x * x);
    return 0.5 * erfc(-x * root_half) + x * exp(-0.5 * x * x) / root_two_pi;
}

static point point_of(const ab_op_run *run, int64_t i) {
    unsigned there = run->backward ? ab_io_needs(run->op, run->io) : 1u;
    point p = {
        .x = (double)NAN, .y = (double)NAN, .a = ab_number64(run, "min"), .b = ab_number64(run, "max")};
    if (run->op == &ab_op_scale) p.a = ab_number64(run, "factor");
    if (run->op == &ab_op_gelu) p.a = (double)ab_integer64(run, "approximate");
    if (there & 1u) p.x = ab_read64(run->io->in[0], i);
    if (run->backward && there & AB_NEEDS_OUT) p.y = ab_read64(run->io->out, i);
    return p;
}

#define UNARY(id)                                                                                            \
    static bool id##_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {                             \
        const point p = point_of(run, i);                                                                    \
        ab_add64(e, id##_value(&p));                                                                         \
        return true;                                                                                         \
    }                                                                                                        \
    static bool id##_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {                 \
        const point p = point_of(run, i);                                                                    \
        double slope = id##_slope(&p);                                                                       \
        (void)wrote;                                                                                         \
        ab_track_max64(e, slope);                                                                            \
        ab_add64(e, ab_read64(run->io->dout, i) * slope);                                                    \
        return true;                                                                                         \
    }                                                                                                        \
    const ab_element64_kind ab_element64_##id = {                                                            \
        .op = &ab_op_##id, .forward = id##_forward, .backward = id##_backward};
UNARY(neg)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(square)
UNARY(abs)
UNARY(clamp)
UNARY(scale)
UNARY(relu)
UNARY(tanh)
UNARY(sigmoid)
UNARY(silu)
UNARY(gelu)

/* ---- binary functions ------------------------------------------------------------------------ */

typedef double (*of_two)(double a, double b);

static double one(double a, double b) { return (void)a, (void)b, 1; }
static double minus_one(double a, double b) { return (void)a, (void)b, -1; }
static double first(double a, double b) { return (void)b, a; }
static double second(double a, double b) { return (void)a, b; }
static double add_value(double a, double b) { return a + b; }
static double sub_value(double a, double b) { return a - b; }
static double mul_value(double a, double b) { return a * b; }
static double div_value(double a, double b) { return a / b; }
static double div_by_a(double a, double b) { return (void)a, 1 / b; }
static double div_by_b(double a, double b) { return -(a / b) / b; }

/* in[1], or the constant used instead. */
static double operand(const ab_op_run *run, int k, const ab_shape *out, unsigned there, int64_t i) {
    const ab_tensor *in = run->io->in[k];
    if (!in) return ab_number64(run, "value");
    return there >> k & 1u ? ab_read64(in, ab_broadcast64(&in->shape, out, i)) : (double)NAN;
}

static bool two_forward(const ab_op_run *run, int64_t i, ab_element64 *e, of_two value) {
    const ab_shape *out = &run->io->out->shape;
    ab_add64(e, value(operand(run, 0, out, 3, i), operand(run, 1, out, 3, i)));
    return true;
}

static bool two_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e, of_two by) {
    const ab_tensor *dout = run->io->dout, *in = run->io->in[wrote - AB_WROTE_DIN];
    const unsigned there = ab_io_needs(run->op, run->io);
    const bool same = ab_shape_equal(&in->shape, &dout->shape);
    const int64_t count = ab_tensor_count(dout);
    if (!same && count > AB_ELEMENT64_WORK) return false;
    for (int64_t k = same ? i : 0; k < (same ? i + 1 : count); k++) {
        if (!same && ab_broadcast64(&in->shape, &dout->shape, k) != i) continue;
        double slope = by(operand(run, 0, &dout->shape, there, k), operand(run, 1, &dout->shape, there, k));
        ab_track_max64(e, slope);
        ab_add64(e, ab_read64(dout, k) * slope);
    }
    return true;
}

/* All elements of a broadcast operand, in one pass over the output. */
static void two_backward_all(const ab_op_run *run, int wrote, ab_element64 *result, of_two by) {
    const ab_tensor *dout = run->io->dout, *in = run->io->in[wrote - AB_WROTE_DIN];
    const unsigned there = ab_io_needs(run->op, run->io);
    for (int64_t k = 0; k < ab_tensor_count(dout); k++) {
        ab_element64 *e = &result[ab_broadcast64(&in->shape, &dout->shape, k)];
        const double slope =
            by(operand(run, 0, &dout->shape, there, k), operand(run, 1, &dout->shape, there, k));
        ab_track_max64(e, slope);
        ab_add64(e, ab_read64(dout, k) * slope);
    }
}

static bool two_several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result,
                        of_two value, const of_two by[2]) {
    const int which = wrote - AB_WROTE_DIN;
    if (run->backward && n >= ab_tensor_count(run->io->in[which])) {
        two_backward_all(run, wrote, result, by[which]);
        return true;
    }
    for (int i = 0; i < n; i++)
        if (!(run->backward ? two_backward(run, wrote, place[i], &result[i], by[which])
                            : two_forward(run, place[i], &result[i], value)))
            return false;
    return true;
}

#define BINARY(id, by_a, by_b)                                                                               \
    static bool id##_several(const ab_op_run *run, int wrote, const int64_t *place, int n,                   \
                             ab_element64 *result) {                                                         \
        static const of_two by[2] = {by_a, by_b};                                                            \
        return two_several(run, wrote, place, n, result, id##_value, by);                                    \
    }                                                                                                        \
    const ab_element64_kind ab_element64_##id = {.op = &ab_op_##id, .several = id##_several};
BINARY(add, one, one)
BINARY(sub, one, minus_one)
BINARY(mul, second, first)
BINARY(div, div_by_a, div_by_b)

/* ---- losses ---------------------------------------------------------------------------------- */

static double mse_value(double x, double t) { return (x - t) * (x - t); }
static double mse_by_x(double x, double t) { return 2 * (x - t); }
static double mse_by_t(double x, double t) { return 2 * (t - x); }

static double bce_log(double p) { return log(p) < -100 ? -100 : log(p); }
static double bce_value(double x, double t) { return (t - 1) * bce_log(1 - x) - t * bce_log(x); }
static double bce_by_x(double x, double t) { return (x - t) / fmax((1 - x) * x, 1e-12); }
static double bce_by_t(double x, double t) { return (void)t, bce_log(1 - x) - bce_log(x); }

static double bce_with_logits_value(double x, double t) { return fmax(x, 0) - x * t + log1p(exp(-fabs(x))); }
static double bce_with_logits_by_x(double x, double t) { return sigmoid64(x) - t; }
static double bce_with_logits_by_t(double x, double t) { return (void)t, -x; }

static double share_of(const ab_op_run *run) {
    const double weight = ab_number64(run, "weight");
    return ab_integer64(run, "reduction") == 0 ? weight / (double)ab_tensor_count(run->io->in[0]) : weight;
}

static bool loss_forward(const ab_op_run *run, ab_element64 *e, of_two value) {
    const ab_tensor *x = run->io->in[0], *t = run->io->in[1];
    for (int64_t i = 0; i < ab_tensor_count(x); i++) ab_add64(e, value(ab_read64(x, i), ab_read64(t, i)));
    e->value *= share_of(run);
    return true;
}

static bool loss_backward(const ab_op_run *run, int64_t i, ab_element64 *e, of_two by) {
    double slope = by(ab_read64(run->io->in[0], i), ab_read64(run->io->in[1], i));
    ab_track_max64(e, slope);
    ab_add64(e, ab_read64(run->io->dout, 0) * share_of(run) * slope);
    return true;
}

#define LOSS(id)                                                                                             \
    static bool id##_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {                             \
        return (void)i, loss_forward(run, e, id##_value);                                                    \
    }                                                                                                        \
    static bool id##_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {                 \
        return loss_backward(run, i, e, wrote == AB_WROTE_DIN ? id##_by_x : id##_by_t);                      \
    }                                                                                                        \
    const ab_element64_kind ab_element64_##id = {                                                            \
        .op = &ab_op_##id, .forward = id##_forward, .backward = id##_backward};
LOSS(mse)
LOSS(bce)
LOSS(bce_with_logits)
