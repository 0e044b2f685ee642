/* sum, mean and max over dimensions, as torch.sum, torch.mean and torch.amax: over all dimensions if "dim" is
 * absent. Images are NHWC: their dimensions are numbered in that order. The gradient of a maximum is divided
 * among equal elements, as in amax. */
#include "kernels/ops/reduction.h"

#include "kernels/ops/blocks.h"
#include "kernels/ops/views.h"

typedef struct reduce_attrs {
    ab_ints dim;
    bool keepdim;
} reduce_attrs;

static const ab_attr attrs_table[] = {{"dim", AB_ATTR_INTS, offsetof(reduce_attrs, dim), false, 0,
                                       -AB_MAX_DIMS, AB_MAX_DIMS - 1, "dimensions to reduce; absent: all"},
                                      {"keepdim", AB_ATTR_BOOL, offsetof(reduce_attrs, keepdim), false, 0, 0,
                                       1, "whether reduced dimensions stay, with one element"},
                                      {0}};

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Bit i: dimension i is reduced; 0 if "dim" is out of range. */
static unsigned axes_of(const void *attrs, int ndim) {
    const ab_ints *dim = &((const reduce_attrs *)attrs)->dim;
    unsigned axes = 0;
    if (dim->count == 0) return (1u << ndim) - 1u;
    for (int i = 0; i < dim->count; i++) {
        int64_t d = dim->value[i] < 0 ? dim->value[i] + ndim : dim->value[i];
        if (d < 0 || d >= ndim || axes >> d & 1u) return 0;
        axes |= 1u << d;
    }
    return axes;
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const reduce_attrs *a = attrs;
    const unsigned axes = axes_of(attrs, in->ndim);
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (!axes)
        return ab_fail(AB_CONFIG, "'dim' must name dimensions of %s, each once", ab_shape_text(in, text));
    *out = (ab_shape){.ndim = 0};
    for (int i = 0; i < in->ndim; i++) {
        bool is_reduced = axes >> i & 1u;
        if (!is_reduced || a->keepdim) out->dim[out->ndim++] = is_reduced ? 1 : in->dim[i];
    }
    if (out->ndim == 0) *out = (ab_shape){.ndim = 1, .dim = {1}};
    return AB_OK;
}

static ab_reduction reduction_of(const ab_op_io *io) {
    return ab_reduction_of(&io->in[0]->shape, axes_of(io->attrs, io->in[0]->shape.ndim));
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return (double)ab_shape_count(in);
}

/* Scratch of the reduction, then fp32 results if the output is not fp32. */
static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    ab_reduction r = reduction_of(io);
    (void)exec;
    *workspace_bytes = ab_reduction_bytes(&r) + ab_floats_bytes(r.kept);
    *state_bytes = 0;
    return AB_OK;
}

static float *results(const ab_exec *exec, const ab_reduction *r) {
    return (float *)(void *)((char *)exec->workspace + ab_reduction_bytes(r));
}

/* ---- forward --------------------------------------------------------------------------------- */

static const float *read_input(const void *self, int64_t at, int64_t n, float *buffer) {
    return ab_read(self, at, n, buffer);
}

static ab_status forward_sum(const ab_exec *exec, ab_op_io *io, bool mean) {
    ab_reduction r = reduction_of(io);
    float *result = ab_is_f32(io->out) ? io->out->data : results(exec, &r);
    ab_reduce_sum(&r, read_input, io->in[0], mean ? 1.0 / (double)r.reduced : 1.0, exec->workspace, result);
    ab_emit_all(exec, io->out, result);
    return AB_OK;
}

static ab_status sum_forward(const ab_exec *exec, ab_op_io *io) { return forward_sum(exec, io, false); }
static ab_status mean_forward(const ab_exec *exec, ab_op_io *io) { return forward_sum(exec, io, true); }

static ab_status max_forward(const ab_exec *exec, ab_op_io *io) {
    ab_reduction r = reduction_of(io);
    float *result = ab_is_f32(io->out) ? io->out->data : results(exec, &r);
    ab_reduce_max(&r, read_input, io->in[0], exec->workspace, result);
    ab_emit_all(exec, io->out, result);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct spread_job {
    const ab_exec *exec;
    ab_tensor *din;
    const ab_tensor *in, *out, *dout; /* in and out: max only */
    ab_strided view;                  /* broadcasts tensors of the result's shape to the input's */
    ab_tensor share;                  /* fp32: 1 / number of maxima */
    float factor;
} spread_job;

static void spread_block(void *argument, int64_t chunk, int thread) {
    const spread_job *job = argument;
    float buffer[AB_BLOCK], scaled[AB_BLOCK];
    (void)thread;
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->din) - at);
    const float *dout = ab_strided_read(&job->view, job->dout, at, n, buffer);
    for (int64_t i = 0; i < n; i++) scaled[i] = dout[i] * job->factor;
    ab_emit(job->exec, job->din, at, scaled, n);
}

static void backward_sum(const ab_exec *exec, const ab_op_io *io, float factor) {
    const ab_shape *whole = &io->in[0]->shape;
    spread_job job = {.exec = exec, .din = io->din[0], .dout = io->dout, .factor = factor};
    int64_t n = ab_shape_count(whole);
    if (!job.din) return;
    job.view = ab_strided_along(whole, axes_of(io->attrs, whole->ndim));
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), spread_block, &job);
}

static ab_status sum_backward(const ab_exec *exec, ab_op_io *io) {
    backward_sum(exec, io, 1.0f);
    return AB_OK;
}

static ab_status mean_backward(const ab_exec *exec, ab_op_io *io) {
    ab_reduction r = reduction_of(io);
    backward_sum(exec, io, (float)(1.0 / (double)r.reduced));
    return AB_OK;
}

/* 1 where the input equals the maximum. */
static const float *read_is_maximum(const void *self, int64_t at, int64_t n, float *buffer) {
    const spread_job *job = self;
    float x[AB_REDUCE_RUN], y[AB_REDUCE_RUN];
    const float *in = ab_read(job->in, at, n, x), *out = ab_strided_read(&job->view, job->out, at, n, y);
    for (int64_t i = 0; i < n; i++) buffer[i] = in[i] == out[i] ? 1.0f : 0.0f;
    return buffer;
}

static void share_block(void *argument, int64_t chunk, int thread) {
    const spread_job *job = argument;
    float buffer[AB_REDUCE_RUN], dout_buffer[AB_REDUCE_RUN], share_buffer[AB_REDUCE_RUN];
    (void)thread;
    int64_t at = chunk * AB_REDUCE_RUN, n = ab_min64(AB_REDUCE_RUN, ab_tensor_count(job->din) - at);
    const float *dout = ab_strided_read(&job->view, job->dout, at, n, dout_buffer);
    const float *hits = ab_strided_read(&job->view, &job->share, at, n, share_buffer);
    read_is_maximum(job, at, n, buffer);
    for (int64_t i = 0; i < n; i++) buffer[i] = buffer[i] > 0.0f ? dout[i] / hits[i] : 0.0f;
    ab_emit(job->exec, job->din, at, buffer, n);
}

static ab_status max_backward(const ab_exec *exec, ab_op_io *io) {
    const ab_shape *whole = &io->in[0]->shape;
    ab_reduction r = reduction_of(io);
    spread_job job = {.exec = exec, .din = io->din[0], .in = io->in[0], .out = io->out, .dout = io->dout};
    int64_t n = ab_shape_count(whole);
    if (!job.din) return AB_OK;
    job.view = ab_strided_along(whole, axes_of(io->attrs, whole->ndim));
    job.share = (ab_tensor){.data = results(exec, &r), .shape = io->out->shape, .format = &ab_format_fp32};
    ab_reduce_sum(&r, read_is_maximum, &job, 1.0, exec->workspace, job.share.data);
    ab_for_chunks(n, ab_div_up(n, AB_REDUCE_RUN), share_block, &job);
    return AB_OK;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

#define REDUCE(which, needs)                                                                                 \
    const ab_op ab_op_##which = {.name = #which,                                                             \
                                 .inputs = 1,                                                                \
                                 .attrs_bytes = sizeof(reduce_attrs),                                        \
                                 .attrs = attrs_table,                                                       \
                                 .infer = infer,                                                             \
                                 .backward_needs = (needs),                                                  \
                                 .prepare = prepare,                                                         \
                                 .forward = which##_forward,                                                 \
                                 .backward = which##_backward,                                               \
                                 .flops = flops,                                                             \
                                 .describe = ab_describe_own};

REDUCE(sum, 0)
REDUCE(mean, 0)
REDUCE(max, 1u << 0 | AB_NEEDS_OUT)
