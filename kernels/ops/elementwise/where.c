/* where and masked_fill, as in torch. A condition or mask is true where it is non-zero or, with "equals",
 * where it equals that number (the id of a padding token). It may be floating or int32 ids, is broadcast, and
 * has no gradient. masked_fill with "causal" and no mask fills the elements above the diagonal of the last
 * two dimensions. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/elementwise/operand_gradient.h"
#include "kernels/ops/views.h"

#include <math.h>
#include <string.h>

typedef struct mask_attrs {
    double equals, value;
    bool causal;
} mask_attrs;

#define EQUALS                                                                                               \
    {                                                                                                        \
        "equals", AB_ATTR_FLOAT, offsetof(mask_attrs, equals), false, (double)NAN, -1e300, 1e300,            \
            "true where the mask is this number; absent: where it is not zero"                               \
    }

static const ab_attr where_table[] = {EQUALS, {0}};

static const ab_attr fill_table[] = {EQUALS,
                                     {"value", AB_ATTR_FLOAT, offsetof(mask_attrs, value), false,
                                      -(double)INFINITY, -1e300, 1e300,
                                      "what is put where the mask is true; absent: minus infinity"},
                                     {"causal", AB_ATTR_BOOL, offsetof(mask_attrs, causal), false, 0, 0, 1,
                                      "mask what lies above the diagonal of the last two dimensions"},
                                     {0}};

/* ---- masks ----------------------------------------------------------------------------------- */

typedef struct mask {
    const ab_tensor *tensor; /* NULL: causal */
    ab_tensor bits;          /* ids, viewed as fp32 of the same bits */
    ab_strided view;
    bool compares;
    double equals;
    int64_t rows, columns; /* of a causal mask */
} mask;

static void open_mask(mask *m, const mask_attrs *a, const ab_tensor *tensor, const ab_shape *shape) {
    *m = (mask){.tensor = tensor, .compares = !isnan(a->equals), .equals = a->equals};
    if (tensor) {
        m->bits = *tensor;
        if (!tensor->format) m->bits.format = &ab_format_fp32;
        m->view = ab_strided_broadcast(&tensor->shape, shape);
        return;
    }
    m->rows = shape->dim[shape->ndim - 2];
    m->columns = shape->dim[shape->ndim - 1];
}

static double number_of(const mask *m, float value) {
    int32_t id;
    if (m->tensor->format) return (double)value;
    memcpy(&id, &value, sizeof id);
    return (double)id;
}

/* Evaluates the mask at elements [at, at + n) of the result. n is at most AB_REDUCE_RUN. */
static void read_mask(const mask *m, int64_t at, int64_t n, bool *hit) {
    float buffer[AB_REDUCE_RUN];
    if (!m->tensor) { /* the last row sees every column */
        for (int64_t i = 0; i < n; i++) {
            int64_t column = (at + i) % m->columns, row = (at + i) / m->columns % m->rows;
            hit[i] = column - row > m->columns - m->rows;
        }
        return;
    }
    const float *values = ab_strided_read(&m->view, &m->bits, at, n, buffer);
    for (int64_t i = 0; i < n; i++) {
        double x = number_of(m, values[i]);
        hit[i] = m->compares ? x == m->equals : x != 0.0;
    }
}

/* ---- selection ------------------------------------------------------------------------------- */

/* out = mask ? one : other; an absent tensor is a number. The gradient of `one` or `other` is dout or 0. */
typedef struct choice {
    const ab_exec *exec;
    mask mask;
    const ab_tensor *tensor[2]; /* one, other */
    ab_strided view[2];
    float number[2];
    ab_tensor *dst;
    const ab_tensor *dout;
    bool of; /* gradient passes where the mask has this value */
} choice;

static const float *read_side(const choice *c, int side, int64_t at, int64_t n, float *buffer) {
    if (c->tensor[side]) return ab_strided_read(&c->view[side], c->tensor[side], at, n, buffer);
    for (int64_t i = 0; i < n; i++) buffer[i] = c->number[side];
    return buffer;
}

static void choose_block(void *argument, int64_t chunk, int thread) {
    const choice *c = argument;
    float one_buffer[AB_REDUCE_RUN], other_buffer[AB_REDUCE_RUN], result[AB_REDUCE_RUN];
    bool hit[AB_REDUCE_RUN];
    (void)thread;
    int64_t at = chunk * AB_REDUCE_RUN, n = ab_min64(AB_REDUCE_RUN, ab_tensor_count(c->dst) - at);
    const float *one = read_side(c, 0, at, n, one_buffer), *other = read_side(c, 1, at, n, other_buffer);
    read_mask(&c->mask, at, n, hit);
    for (int64_t i = 0; i < n; i++) result[i] = hit[i] ? one[i] : other[i];
    ab_emit(c->exec, c->dst, at, result, n);
}

static const float *read_passed(const void *self, int64_t at, int64_t n, float *buffer) {
    const choice *c = self;
    float dout_buffer[AB_REDUCE_RUN];
    bool hit[AB_REDUCE_RUN];
    const float *dout = ab_read(c->dout, at, n, dout_buffer);
    read_mask(&c->mask, at, n, hit);
    for (int64_t i = 0; i < n; i++) buffer[i] = hit[i] == c->of ? dout[i] : 0.0f;
    return buffer;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_operand_gradients_bytes(io, 3);
    *state_bytes = 0;
    return AB_OK;
}

/* A mask has no gradient. If the mask is computed from trained values, its gradient is requested and set to
 * zero. */
static void no_gradient(const ab_exec *exec, ab_tensor *din) {
    static const float zero[AB_REDUCE_RUN];
    if (!din) return;
    for (int64_t at = 0, n; at < ab_tensor_count(din); at += n) {
        n = ab_min64(AB_REDUCE_RUN, ab_tensor_count(din) - at);
        ab_emit(exec, din, at, zero, n);
    }
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    (void)out;
    return 0.0;
}

/* ---- where ----------------------------------------------------------------------------------- */

static ab_status where_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT], c[AB_SHAPE_TEXT];
    ab_shape both;
    (void)attrs;
    (void)inputs;
    if (ab_broadcast_shape(&in[1], &in[2], &both) && ab_broadcast_shape(&in[0], &both, out)) return AB_OK;
    return ab_fail(AB_CONFIG, "where cannot broadcast the condition %s and %s, %s", ab_shape_text(&in[0], a),
                   ab_shape_text(&in[1], b), ab_shape_text(&in[2], c));
}

static ab_status where_forward(const ab_exec *exec, ab_op_io *io) {
    choice c = {.exec = exec, .dst = io->out};
    open_mask(&c.mask, io->attrs, io->in[0], &io->out->shape);
    for (int i = 0; i < 2; i++) {
        c.tensor[i] = io->in[i + 1];
        c.view[i] = ab_strided_broadcast(&io->in[i + 1]->shape, &io->out->shape);
    }
    int64_t n = ab_tensor_count(io->out);
    ab_for_chunks(n, ab_div_up(n, AB_REDUCE_RUN), choose_block, &c);
    return AB_OK;
}

static ab_status where_backward(const ab_exec *exec, ab_op_io *io) {
    choice c = {.exec = exec, .dout = io->dout};
    open_mask(&c.mask, io->attrs, io->in[0], &io->dout->shape);
    for (int i = 0; i < 2; i++) {
        c.dst = io->din[i + 1];
        c.of = i == 0;
        if (c.dst) ab_operand_gradient(exec, c.dst, &c.dout->shape, read_passed, &c);
    }
    no_gradient(exec, io->din[0]);
    return AB_OK;
}

const ab_op ab_op_where = {.name = "where",
                           .inputs = 3,
                           .maybe_integer = 1u << 0,
                           .attrs_bytes = sizeof(mask_attrs),
                           .attrs = where_table,
                           .infer = where_infer,
                           .backward_needs = 1u << 0,
                           .prepare = prepare,
                           .forward = where_forward,
                           .backward = where_backward,
                           .flops = flops,
                           .describe = ab_describe_own};

/* ---- masked_fill ----------------------------------------------------------------------------- */

static ab_status fill_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT];
    const bool causal = ((const mask_attrs *)attrs)->causal;
    if (causal == (inputs == 2))
        return ab_fail(AB_CONFIG, "masked_fill expects a second input, the mask, or 'causal': true");
    if (causal && in->ndim < 2)
        return ab_fail(AB_CONFIG, "masked_fill: a causal mask needs two dimensions, found %s",
                       ab_shape_text(in, a));
    bool fits = inputs == 1 || (ab_broadcast_shape(&in[0], &in[1], out) && ab_shape_equal(&in[0], out));
    *out = in[0];
    if (fits) return AB_OK;
    return ab_fail(AB_CONFIG, "masked_fill cannot broadcast the mask %s to %s", ab_shape_text(&in[1], b),
                   ab_shape_text(&in[0], a));
}

static ab_status fill_forward(const ab_exec *exec, ab_op_io *io) {
    const mask_attrs *a = io->attrs;
    choice c = {.exec = exec, .dst = io->out, .tensor = {NULL, io->in[0]}, .number = {(float)a->value, 0}};
    open_mask(&c.mask, a, io->in[1], &io->out->shape);
    c.view[1] = ab_strided_broadcast(&io->in[0]->shape, &io->out->shape);
    int64_t n = ab_tensor_count(io->out);
    ab_for_chunks(n, ab_div_up(n, AB_REDUCE_RUN), choose_block, &c);
    return AB_OK;
}

static ab_status fill_backward(const ab_exec *exec, ab_op_io *io) {
    choice c = {.exec = exec, .dst = io->din[0], .dout = io->dout, .of = false};
    open_mask(&c.mask, io->attrs, io->in[1], &io->dout->shape);
    if (c.dst) ab_operand_gradient(exec, c.dst, &c.dout->shape, read_passed, &c);
    no_gradient(exec, io->din[1]);
    return AB_OK;
}

const ab_op ab_op_masked_fill = {.name = "masked_fill",
                                 .inputs = 1,
                                 .optional_inputs = 1,
                                 .maybe_integer = 1u << 1,
                                 .attrs_bytes = sizeof(mask_attrs),
                                 .attrs = fill_table,
                                 .infer = fill_infer,
                                 .backward_needs = 1u << 1,
                                 .prepare = prepare,
                                 .forward = fill_forward,
                                 .backward = fill_backward,
                                 .flops = flops,
                                 .describe = ab_describe_own};
