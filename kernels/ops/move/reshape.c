/* reshape: the same values in the same order with another shape, as torch.reshape. In "shape", 0 keeps the
 * input's dimension at that index (the batch) and one -1 is inferred. */
#include "kernels/ops/blocks.h"

typedef struct reshape_attrs {
    ab_ints shape;
} reshape_attrs;

static const ab_attr attrs_table[] = {{"shape", AB_ATTR_INTS, offsetof(reshape_attrs, shape), true, 0, -1,
                                       1 << 24, "the new shape; 0: as the input's, -1: what is left"},
                                      {0}};

static ab_status refuse(const ab_ints *wanted, const ab_shape *in) {
    char text[AB_SHAPE_TEXT], new_text[AB_SHAPE_TEXT];
    ab_shape shape = {.ndim = wanted->count};
    for (int i = 0; i < wanted->count; i++) shape.dim[i] = wanted->value[i];
    return ab_fail(AB_CONFIG, "reshape: cannot make %s of %s", ab_shape_text(&shape, new_text),
                   ab_shape_text(in, text));
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const ab_ints *wanted = &((const reshape_attrs *)attrs)->shape;
    const int64_t count = ab_shape_count(in);
    int64_t known = 1;
    int open = -1;
    (void)inputs;
    *out = (ab_shape){.ndim = wanted->count};
    for (int i = 0; i < wanted->count; i++) {
        int64_t dim = wanted->value[i];
        if ((dim == 0 && i >= in->ndim) || (dim < 0 && open >= 0)) return refuse(wanted, in);
        if (dim < 0) open = i;
        out->dim[i] = dim == 0 ? in->dim[i] : dim < 0 ? 1 : dim;
        if (out->dim[i] > count / known) return refuse(wanted, in);
        known *= out->dim[i];
    }
    if (open >= 0) out->dim[open] = count / known;
    return ab_shape_count(out) == count ? AB_OK : refuse(wanted, in);
}

static bool is_view(const void *attrs, const ab_shape *in) {
    (void)attrs;
    (void)in;
    return true;
}

/* With shared memory nothing is copied, but an observer still sees the values. */
static void copy(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    if (dst->data != src->data || exec->observer) ab_cast(exec, dst, src);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    copy(exec, io->out, io->in[0]);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (io->din[0]) copy(exec, io->din[0], io->dout);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    (void)out;
    return 0.0;
}

const ab_op ab_op_reshape = {.name = "reshape",
                             .inputs = 1,
                             .attrs_bytes = sizeof(reshape_attrs),
                             .attrs = attrs_table,
                             .is_view = is_view,
                             .infer = infer,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops,
                             .describe = ab_describe_own};
