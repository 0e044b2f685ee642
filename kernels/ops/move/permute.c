/* permute and transpose: reorder dimensions, as torch.permute and torch.transpose; values are copied. Images
 * are NHWC: their dimensions are numbered in that order. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/views.h"

typedef struct permute_attrs {
    ab_ints dims;
} permute_attrs;

typedef struct transpose_attrs {
    int64_t dim0, dim1;
} transpose_attrs;

static const ab_attr permute_table[] = {{"dims", AB_ATTR_INTS, offsetof(permute_attrs, dims), true, 0,
                                         -AB_MAX_DIMS, AB_MAX_DIMS - 1,
                                         "for each dimension of the result the one of the input"},
                                        {0}};

static const ab_attr transpose_table[] = {{"dim0", AB_ATTR_INT, offsetof(transpose_attrs, dim0), true, 0,
                                           -AB_MAX_DIMS, AB_MAX_DIMS - 1, "the one dimension"},
                                          {"dim1", AB_ATTR_INT, offsetof(transpose_attrs, dim1), true, 0,
                                           -AB_MAX_DIMS, AB_MAX_DIMS - 1, "the other"},
                                          {0}};

typedef struct order {
    int64_t of[AB_MAX_DIMS];
} order;

/* ---- orders ---------------------------------------------------------------------------------- */

static ab_status permute_order(const permute_attrs *a, const ab_shape *in, order *o) {
    char text[AB_SHAPE_TEXT];
    unsigned seen = 0;
    for (int i = 0; i < a->dims.count && a->dims.count == in->ndim; i++) {
        o->of[i] = a->dims.value[i] < 0 ? a->dims.value[i] + in->ndim : a->dims.value[i];
        if (o->of[i] >= 0 && o->of[i] < in->ndim) seen |= 1u << o->of[i];
    }
    if (seen == (1u << in->ndim) - 1u) return AB_OK;
    return ab_fail(AB_CONFIG, "permute: 'dims' must name each of the %d dimensions of %s once", in->ndim,
                   ab_shape_text(in, text));
}

static ab_status transpose_order(const transpose_attrs *a, const ab_shape *in, order *o) {
    char text[AB_SHAPE_TEXT];
    int64_t dim0 = a->dim0 < 0 ? a->dim0 + in->ndim : a->dim0,
            dim1 = a->dim1 < 0 ? a->dim1 + in->ndim : a->dim1;
    if (dim0 < 0 || dim1 < 0 || dim0 >= in->ndim || dim1 >= in->ndim)
        return ab_fail(AB_CONFIG, "transpose: dim0 %lld and dim1 %lld must be dimensions of %s",
                       (long long)a->dim0, (long long)a->dim1, ab_shape_text(in, text));
    for (int i = 0; i < in->ndim; i++) o->of[i] = i;
    o->of[dim0] = dim1;
    o->of[dim1] = dim0;
    return AB_OK;
}

static order inverse(const order *o, int ndim) {
    order back = {{0}};
    for (int i = 0; i < ndim; i++) back.of[o->of[i]] = i;
    return back;
}

/* ---- moving ---------------------------------------------------------------------------------- */

typedef struct move_job {
    const ab_exec *exec;
    ab_tensor *dst;
    const ab_tensor *src;
    ab_strided view;
} move_job;

static void move_block(void *argument, int64_t chunk, int thread) {
    const move_job *job = argument;
    (void)thread;
    float buffer[AB_BLOCK];
    int64_t at = chunk * AB_BLOCK, n = ab_min64(AB_BLOCK, ab_tensor_count(job->dst) - at);
    ab_emit(job->exec, job->dst, at, ab_strided_read(&job->view, job->src, at, n, buffer), n);
}

static void move(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src, const order *o) {
    move_job job = {exec, dst, src, ab_strided_permute(&src->shape, o->of)};
    int64_t n = ab_tensor_count(dst);
    ab_for_chunks(n, ab_div_up(n, AB_BLOCK), move_block, &job);
}

static void permuted(const ab_shape *in, const order *o, ab_shape *out) {
    out->ndim = in->ndim;
    for (int i = 0; i < in->ndim; i++) out->dim[i] = in->dim[o->of[i]];
}

static double no_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    (void)out;
    return 0.0;
}

/* ---- permute --------------------------------------------------------------------------------- */

static ab_status permute_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    order o = {{0}};
    (void)inputs;
    AB_TRY(permute_order(attrs, in, &o));
    permuted(in, &o, out);
    return AB_OK;
}

static ab_status permute_forward(const ab_exec *exec, ab_op_io *io) {
    order o = {{0}};
    AB_TRY(permute_order(io->attrs, &io->in[0]->shape, &o));
    move(exec, io->out, io->in[0], &o);
    return AB_OK;
}

static ab_status permute_backward(const ab_exec *exec, ab_op_io *io) {
    order o = {{0}};
    if (!io->din[0]) return AB_OK;
    AB_TRY(permute_order(io->attrs, &io->din[0]->shape, &o));
    o = inverse(&o, io->din[0]->shape.ndim);
    move(exec, io->din[0], io->dout, &o);
    return AB_OK;
}

const ab_op ab_op_permute = {.name = "permute",
                             .inputs = 1,
                             .attrs_bytes = sizeof(permute_attrs),
                             .attrs = permute_table,
                             .infer = permute_infer,
                             .forward = permute_forward,
                             .backward = permute_backward,
                             .flops = no_flops,
                             .describe = ab_describe_own};

/* ---- transpose ------------------------------------------------------------------------------- */

static ab_status transpose_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    order o = {{0}};
    (void)inputs;
    AB_TRY(transpose_order(attrs, in, &o));
    permuted(in, &o, out);
    return AB_OK;
}

static ab_status transpose_forward(const ab_exec *exec, ab_op_io *io) {
    order o = {{0}};
    AB_TRY(transpose_order(io->attrs, &io->in[0]->shape, &o));
    move(exec, io->out, io->in[0], &o);
    return AB_OK;
}

/* A transposition is its own inverse. */
static ab_status transpose_backward(const ab_exec *exec, ab_op_io *io) {
    order o = {{0}};
    if (!io->din[0]) return AB_OK;
    AB_TRY(transpose_order(io->attrs, &io->dout->shape, &o));
    move(exec, io->din[0], io->dout, &o);
    return AB_OK;
}

const ab_op ab_op_transpose = {.name = "transpose",
                               .inputs = 1,
                               .attrs_bytes = sizeof(transpose_attrs),
                               .attrs = transpose_table,
                               .infer = transpose_infer,
                               .forward = transpose_forward,
                               .backward = transpose_backward,
                               .flops = no_flops,
                               .describe = ab_describe_own};
