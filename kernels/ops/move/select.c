/* select: one index of one dimension, which is removed, as torch.select: the class token of a transformer,
 * the last step of a recurrence. The gradient is 0 elsewhere. */
#include "kernels/ops/blocks.h"

#include <string.h>

typedef struct select_attrs {
    int64_t dim, index;
} select_attrs;

static const ab_attr attrs_table[] = {{"dim", AB_ATTR_INT, offsetof(select_attrs, dim), false, 1, 1,
                                       AB_MAX_DIMS - 1, "dimension; 0 is the batch and stays"},
                                      {"index", AB_ATTR_INT, offsetof(select_attrs, index), false, 0,
                                       -2147483648.0, 2147483647.0, "which; negative: counted from the end"},
                                      {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const select_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (a->dim >= in->ndim || a->index >= in->dim[a->dim] || a->index < -in->dim[a->dim])
        return ab_fail(AB_CONFIG, "select: input %s has no index %lld of dimension %lld",
                       ab_shape_text(in, text), (long long)a->index, (long long)a->dim);
    *out = *in;
    out->ndim--;
    for (int i = (int)a->dim; i < out->ndim; i++) out->dim[i] = in->dim[i + 1];
    return AB_OK;
}

/* A tensor as [outer, size, inner], and the offset of the selected part. */
typedef struct pass {
    const ab_exec *exec;
    const ab_op_io *io;
    int64_t size, inner, index;
} pass;

static pass start(const ab_exec *exec, const ab_op_io *io) {
    const select_attrs *a = io->attrs;
    const ab_shape *in = &io->in[0]->shape;
    pass p = {exec, io, in->dim[a->dim], 1, a->index < 0 ? a->index + in->dim[a->dim] : a->index};
    for (int i = (int)a->dim + 1; i < in->ndim; i++) p.inner *= in->dim[i];
    return p;
}

/* Copies `count` values of src at `from` to dst at `to`; src NULL: zeros. */
static void move(const ab_exec *exec, ab_tensor *dst, int64_t to, const ab_tensor *src, int64_t from,
                 int64_t count) {
    float buffer[AB_BLOCK];
    memset(buffer, 0, sizeof buffer);
    for (int64_t at = 0; at < count; at += AB_BLOCK) {
        int64_t n = ab_min64(AB_BLOCK, count - at);
        ab_emit(exec, dst, to + at, src ? ab_read(src, from + at, n, buffer) : buffer, n);
    }
}

static void take(void *argument, int64_t outer, int thread) {
    const pass *p = argument;
    (void)thread;
    move(p->exec, p->io->out, outer * p->inner, p->io->in[0], (outer * p->size + p->index) * p->inner,
         p->inner);
}

static void give_back(void *argument, int64_t outer, int thread) {
    const pass *p = argument;
    int64_t begin = outer * p->size * p->inner, chosen = begin + p->index * p->inner;
    (void)thread;
    move(p->exec, p->io->din[0], begin, NULL, 0, p->index * p->inner);
    move(p->exec, p->io->din[0], chosen, p->io->dout, outer * p->inner, p->inner);
    move(p->exec, p->io->din[0], chosen + p->inner, NULL, 0, (p->size - 1 - p->index) * p->inner);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    int64_t n = ab_tensor_count(io->out);
    ab_for_chunks(n, n / p.inner, take, &p);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    pass p = start(exec, io);
    if (io->din[0])
        ab_for_chunks(ab_tensor_count(io->din[0]), ab_tensor_count(io->out) / p.inner, give_back, &p);
    return AB_OK;
}

const ab_op ab_op_select = {.name = "select",
                            .inputs = 1,
                            .attrs_bytes = sizeof(select_attrs),
                            .attrs = attrs_table,
                            .infer = infer,
                            .forward = forward,
                            .backward = backward,
                            .describe = ab_describe_own};
