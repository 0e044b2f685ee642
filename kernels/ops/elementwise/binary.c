/* Ops of the binary functions in binary.def: two tensors with torch's broadcasting, or one tensor and the
 * number "value" (with "reverse": the number is the first operand). The gradient of a broadcast operand is
 * summed in a fixed order. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/elementwise/operand_gradient.h"
#include "kernels/ops/views.h"
#include "kernels/vec/vec_ops.h"

typedef struct binary_attrs {
    double value;
    bool reverse;
} binary_attrs;

static const ab_attr attrs_table[] = {{"value", AB_ATTR_FLOAT, offsetof(binary_attrs, value), false,
                                       (double)NAN, -1e300, 1e300,
                                       "the number that takes the place of a second input"},
                                      {"reverse", AB_ATTR_BOOL, offsetof(binary_attrs, reverse), false, 0, 0,
                                       1, "whether the number comes first: value - x, value / x"},
                                      {0}};

/* Operands read by a derivative. */
enum { NEEDS_none = 0, NEEDS_a = 1, NEEDS_b = 2, NEEDS_ab = 3 };

typedef void (*binary_loop)(float *out, const float *a, const float *b, int64_t n);

typedef struct binary {
    binary_loop value, by[2];
    unsigned reads[2]; /* by the derivative with respect to each operand */
} binary;

static ab_status infer_named(const char *name, const void *attrs, const ab_shape *in, int inputs,
                             ab_shape *out) {
    bool number = !isnan(((const binary_attrs *)attrs)->value);
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT];
    if (number != (inputs == 1))
        return ab_fail(AB_CONFIG, "%s expects two inputs, or one and a number 'value'", name);
    *out = in[0];
    if (inputs == 1 || ab_broadcast_shape(&in[0], &in[1], out)) return AB_OK;
    return ab_fail(AB_CONFIG, "%s cannot broadcast %s and %s: dimensions from the right must agree or be 1",
                   name, ab_shape_text(&in[0], a), ab_shape_text(&in[1], b));
}

/* ---- operands -------------------------------------------------------------------------------- */

/* An operand broadcast to the result's shape; a number has no tensor. */
typedef struct operand {
    const ab_tensor *tensor;
    ab_strided view;
    float number;
} operand;

static const float *read_operand(const operand *o, int64_t at, int64_t n, float *buffer) {
    if (o->tensor) return ab_strided_read(&o->view, o->tensor, at, n, buffer);
    for (int64_t i = 0; i < n; i++) buffer[i] = o->number;
    return buffer;
}

typedef struct binary_job {
    const ab_exec *exec;
    const binary *f;
    operand of[2];
    ab_tensor *dst;        /* the result; unused backward */
    const ab_tensor *dout; /* NULL forward */
    int by;
} binary_job;

static binary_job open_job(const ab_exec *exec, const ab_op_io *io, const binary *f) {
    const binary_attrs *a = io->attrs;
    const ab_shape *shape = &io->out->shape;
    binary_job job = {.exec = exec, .f = f};
    int first = !io->in[1] && a->reverse ? 1 : 0;
    for (int i = 0; i < 2 && io->in[i]; i++)
        job.of[i ^ first] = (operand){io->in[i], ab_strided_broadcast(&io->in[i]->shape, shape), 0};
    if (!io->in[1]) job.of[1 ^ first].number = (float)a->value;
    return job;
}

/* The sum of two tensors of one shape (a residual connection) has its own vector loop; its gradient is a
 * copy. */
static const binary add_formulas;

static bool is_plain_sum(const ab_op_io *io, const binary *f) {
    return f == &add_formulas && io->in[1] && ab_shape_equal(&io->in[0]->shape, &io->in[1]->shape);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void forward_block(void *argument, int64_t chunk, int thread) {
    const binary_job *job = argument;
    float a[AB_BLOCK], b[AB_BLOCK], result[AB_BLOCK];
    (void)thread;
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    float *out = ab_target(job->dst, at, result);
    job->f->value(out, read_operand(&job->of[0], at, n, a), read_operand(&job->of[1], at, n, b), n);
    ab_emit(job->exec, job->dst, at, out, n);
}

static ab_status forward_of(const ab_exec *exec, ab_op_io *io, const binary *f) {
    if (is_plain_sum(io, f)) {
        ab_add(exec, io->out, io->in[0], io->in[1]);
        return AB_OK;
    }
    binary_job job = open_job(exec, io, f);
    int64_t n = ab_tensor_count(io->out);
    job.dst = io->out;
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), forward_block, &job);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dout times the derivative. Reads only the tensors the derivative needs; others may have been freed. */
static const float *read_gradient(const void *self, int64_t at, int64_t n, float *buffer) {
    const binary_job *job = self;
    const unsigned reads = job->f->reads[job->by];
    float a_buffer[AB_REDUCE_RUN], b_buffer[AB_REDUCE_RUN], dout_buffer[AB_REDUCE_RUN];
    const float *dout = ab_read(job->dout, at, n, dout_buffer);
    const float *a = reads & NEEDS_a ? read_operand(&job->of[0], at, n, a_buffer) : dout;
    const float *b = reads & NEEDS_b ? read_operand(&job->of[1], at, n, b_buffer) : dout;
    job->f->by[job->by](buffer, a, b, n);
    for (int64_t i = 0; i < n; i++) buffer[i] *= dout[i];
    return buffer;
}

/* Of a sum, a gradient in the memory of dout is there already; an observer still sees it. */
static bool is_passed_on(const ab_exec *exec, const ab_op_io *io, const ab_tensor *din, const binary *f) {
    return f == &add_formulas && din->data == io->dout->data && !exec->observer;
}

static ab_status backward_of(const ab_exec *exec, ab_op_io *io, const binary *f) {
    binary_job job = open_job(exec, io, f);
    const int first = !job.of[0].tensor; /* 1: operand 0 is a number */
    job.dout = io->dout;
    for (int i = 0; i < 2; i++) {
        if (!io->din[i] || is_passed_on(exec, io, io->din[i], f)) continue;
        job.by = i ^ first;
        if (is_plain_sum(io, f))
            ab_cast(exec, io->din[i], io->dout);
        else
            ab_operand_gradient(exec, io->din[i], &io->dout->shape, read_gradient, &job);
    }
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_operand_gradients_bytes(io, 2);
    *state_bytes = 0;
    return AB_OK;
}

/* Operand i is in[i]; swapped if the number is the first operand. */
static unsigned needs_of(const binary *f, const void *attrs, int inputs, unsigned wanted) {
    bool first = inputs == 1 && ((const binary_attrs *)attrs)->reverse;
    unsigned reads = 0;
    if (inputs == 1) {
        reads = wanted & 1u ? f->reads[first] : 0;
        return reads >> first & 1u;
    }
    for (int i = 0; i < 2; i++)
        if (wanted >> i & 1u) reads |= f->reads[i];
    return reads;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

#define AB_BINARY(id, reads_by_a, reads_by_b)                                                                \
    static void id##_values(float *out, const float *a, const float *b, int64_t n) {                         \
        for (int64_t i = 0; i < n; i++) out[i] = ab_##id##_value(a[i], b[i]);                                \
    }                                                                                                        \
    static void id##_by_a(float *out, const float *a, const float *b, int64_t n) {                           \
        for (int64_t i = 0; i < n; i++) out[i] = ab_##id##_by_a(a[i], b[i]);                                 \
    }                                                                                                        \
    static void id##_by_b(float *out, const float *a, const float *b, int64_t n) {                           \
        for (int64_t i = 0; i < n; i++) out[i] = ab_##id##_by_b(a[i], b[i]);                                 \
    }                                                                                                        \
    static const binary id##_formulas = {                                                                    \
        id##_values, {id##_by_a, id##_by_b}, {NEEDS_##reads_by_a, NEEDS_##reads_by_b}};                      \
    static ab_status id##_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {          \
        return infer_named(#id, attrs, in, inputs, out);                                                     \
    }                                                                                                        \
    static unsigned id##_needs(const void *attrs, int inputs, unsigned wanted) {                             \
        return needs_of(&id##_formulas, attrs, inputs, wanted);                                              \
    }                                                                                                        \
    static ab_status id##_forward(const ab_exec *exec, ab_op_io *io) {                                       \
        return forward_of(exec, io, &id##_formulas);                                                         \
    }                                                                                                        \
    static ab_status id##_backward(const ab_exec *exec, ab_op_io *io) {                                      \
        return backward_of(exec, io, &id##_formulas);                                                        \
    }                                                                                                        \
    const ab_op ab_op_##id = {.name = #id,                                                                   \
                              .inputs = 1,                                                                   \
                              .optional_inputs = 1,                                                          \
                              .mixes_formats = true,                                                         \
                              .attrs_bytes = sizeof(binary_attrs),                                           \
                              .attrs = attrs_table,                                                          \
                              .infer = id##_infer,                                                           \
                              .backward_needs = NEEDS_##reads_by_a | NEEDS_##reads_by_b,                     \
                              .needs = id##_needs,                                                           \
                              .prepare = prepare,                                                            \
                              .forward = id##_forward,                                                       \
                              .backward = id##_backward,                                                     \
                              .flops = flops,                                                                \
                              .describe = ab_describe_own};
#include "kernels/ops/elementwise/binary.def"
#undef AB_BINARY
