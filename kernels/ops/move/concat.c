/* concat: concatenates inputs along one dimension, as torch.cat. Images are NHWC: their channels are
 * dimension -1. */
#include "kernels/ops/blocks.h"

typedef struct concat_attrs {
    int64_t dim;
} concat_attrs;

static const ab_attr attrs_table[] = {{"dim", AB_ATTR_INT, offsetof(concat_attrs, dim), true, 0, -AB_MAX_DIMS,
                                       AB_MAX_DIMS - 1, "the dimension that grows"},
                                      {0}};

static int dim_of(const void *attrs, int ndim) {
    int64_t dim = ((const concat_attrs *)attrs)->dim;
    return (int)(dim < 0 ? dim + ndim : dim);
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT];
    int dim = dim_of(attrs, in[0].ndim);
    if (dim < 0 || dim >= in[0].ndim)
        return ab_fail(AB_CONFIG, "concat: 'dim' %lld is not a dimension of %s",
                       (long long)((const concat_attrs *)attrs)->dim, ab_shape_text(&in[0], a));
    *out = in[0];
    for (int i = 1; i < inputs; i++) {
        ab_shape same = in[i];
        if (same.ndim == in[0].ndim) same.dim[dim] = in[0].dim[dim];
        if (!ab_shape_equal(&same, &in[0]))
            return ab_fail(AB_CONFIG, "concat along dimension %d: %s and %s differ elsewhere", dim,
                           ab_shape_text(&in[0], a), ab_shape_text(&in[i], b));
        out->dim[dim] += in[i].dim[dim];
    }
    return AB_OK;
}

/* Contiguous elements of `shape` per index of the dimensions before `dim`. */
static int64_t run_of(const ab_shape *shape, int dim) {
    int64_t run = 1;
    for (int i = dim; i < shape->ndim; i++) run *= shape->dim[i];
    return run;
}

typedef struct copy_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *src;
    int64_t dst_run, dst_start, src_run, src_start, run;
} copy_job;

/* Copies a block of the part's elements, in the part's order. */
static void copy_block(void *argument, int64_t chunk, int thread) {
    const copy_job *job = argument;
    const int64_t rows = ab_tensor_count(job->dst) / job->dst_run;
    float buffer[AB_BLOCK];
    (void)thread;
    int64_t at = chunk * AB_BLOCK, end = ab_min64(at + AB_BLOCK, rows * job->run);
    while (at < end) {
        int64_t row = at / job->run, column = at % job->run, n = ab_min64(job->run - column, end - at);
        const float *values = ab_read(job->src, row * job->src_run + job->src_start + column, n, buffer);
        ab_emit(job->exec, job->dst, row * job->dst_run + job->dst_start + column, values, n);
        at += n;
    }
}

static void copy_part(copy_job *job) {
    int64_t n = ab_tensor_count(job->dst) / job->dst_run * job->run;
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), copy_block, job);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    const int dim = dim_of(io->attrs, io->out->shape.ndim);
    int64_t start = 0, whole = run_of(&io->out->shape, dim);
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i]; i++) {
        int64_t run = run_of(&io->in[i]->shape, dim);
        copy_job job = {exec, io->out, io->in[i], whole, start, run, 0, run};
        copy_part(&job);
        start += run;
    }
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    const int dim = dim_of(io->attrs, io->dout->shape.ndim);
    int64_t start = 0, whole = run_of(&io->dout->shape, dim);
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i]; i++) {
        int64_t run = run_of(&io->in[i]->shape, dim);
        copy_job job = {exec, io->din[i], io->dout, run, 0, whole, start, run};
        if (io->din[i]) copy_part(&job);
        start += run;
    }
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    (void)out;
    return 0.0;
}

const ab_op ab_op_concat = {.name = "concat",
                            .inputs = -1,
                            .attrs_bytes = sizeof(concat_attrs),
                            .attrs = attrs_table,
                            .infer = infer,
                            .forward = forward,
                            .backward = backward,
                            .flops = flops,
                            .describe = ab_describe_own};
