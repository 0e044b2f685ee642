/* fp64 references of ops that copy elements: every element of the output is a copy of at most one element of
 * an input, and the gradient of an input element is the sum over its copies. The source follows from shapes,
 * attributes, a mask or a maximum, and is searched again on each call. Also dropout, whose copies have a
 * factor. */
#include "probes/element64/element64.h"

/* Element of in[which] that element k of the output is a copy of; -1: none. */
typedef int64_t (*source_of)(const ab_op_run *run, int which, int64_t k);

static const ab_shape *result_shape(const ab_op_run *run) {
    return run->backward ? &run->io->dout->shape : &run->io->out->shape;
}

static bool copied_forward(const ab_op_run *run, int64_t i, ab_element64 *e, source_of source) {
    for (int which = 0; which < AB_MAX_INPUTS && run->io->in[which]; which++) {
        const int64_t from = source(run, which, i);
        if (from >= 0) ab_add64(e, ab_read64(run->io->in[which], from));
    }
    return true;
}

static bool copied_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e, source_of source) {
    const ab_tensor *dout = run->io->dout;
    const int64_t count = ab_tensor_count(dout);
    if (count > AB_ELEMENT64_WORK) return false;
    for (int64_t k = 0; k < count; k++)
        if (source(run, wrote - AB_WROTE_DIN, k) == i) ab_add64(e, ab_read64(dout, k));
    return true;
}

/* All elements of an input's gradient in one pass over the output gradient; others one by one. */
static bool several_copies(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result,
                           source_of source) {
    const ab_tensor *dout = run->io->dout;
    const int which = wrote - AB_WROTE_DIN;
    if (!run->backward || n < ab_tensor_count(run->io->in[which])) {
        for (int i = 0; i < n; i++)
            if (!(run->backward ? copied_backward(run, wrote, place[i], &result[i], source)
                                : copied_forward(run, place[i], &result[i], source)))
                return false;
        return true;
    }
    for (int64_t k = 0; k < ab_tensor_count(dout); k++) {
        const int64_t from = source(run, which, k);
        if (from >= 0) ab_add64(&result[from], ab_read64(dout, k));
    }
    return true;
}

#define COPIES(id)                                                                                           \
    static bool id##_several(const ab_op_run *run, int wrote, const int64_t *place, int n,                   \
                             ab_element64 *result) {                                                         \
        return several_copies(run, wrote, place, n, result, id##_source);                                    \
    }                                                                                                        \
    const ab_element64_kind ab_element64_##id = {.op = &ab_op_##id, .several = id##_several};

/* ---- layout changes -------------------------------------------------------------------------- */

/* {N, H, W, C} read as {N, C, H, W}. */
static int64_t flatten_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *in = &run->io->in[which]->shape;
    if (in->ndim != 4) return k;
    const int64_t pixels = in->dim[1] * in->dim[2], channels = in->dim[3], image = k / (pixels * channels);
    return image * pixels * channels + k % pixels * channels + k / pixels % channels;
}

static int64_t reshape_source(const ab_op_run *run, int which, int64_t k) {
    return (void)run, (void)which, k;
}

/* Dimension d of the result is dimension of[d] of the input. */
static int64_t permuted(const ab_shape *in, const int64_t *of, int64_t k) {
    int64_t step[AB_MAX_DIMS], index = 0;
    for (int d = in->ndim - 1; d >= 0; d--) step[d] = d == in->ndim - 1 ? 1 : step[d + 1] * in->dim[d + 1];
    for (int d = in->ndim - 1; d >= 0; d--) {
        index += k % in->dim[of[d]] * step[of[d]];
        k /= in->dim[of[d]];
    }
    return index;
}

static int64_t permute_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *in = &run->io->in[which]->shape;
    ab_ints dims;
    memcpy(&dims, ab_attr64(run, "dims"), sizeof dims);
    for (int d = 0; d < in->ndim; d++)
        if (dims.value[d] < 0) dims.value[d] += in->ndim;
    return permuted(in, dims.value, k);
}

static int64_t transpose_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *in = &run->io->in[which]->shape;
    int64_t of[AB_MAX_DIMS], a = ab_integer64(run, "dim0"), b = ab_integer64(run, "dim1");
    for (int d = 0; d < in->ndim; d++) of[d] = d;
    if (a < 0) a += in->ndim;
    if (b < 0) b += in->ndim;
    of[a] = b;
    of[b] = a;
    return permuted(in, of, k);
}

COPIES(flatten)
COPIES(reshape)
COPIES(permute)
COPIES(transpose)

/* ---- parts of tensors ------------------------------------------------------------------------ */

/* Elements per index of dimension `dim`. */
static int64_t inner_of(const ab_shape *shape, int64_t dim) {
    int64_t inner = 1;
    for (int64_t d = dim + 1; d < shape->ndim; d++) inner *= shape->dim[d];
    return inner;
}

static int64_t concat_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *out = result_shape(run);
    int64_t dim = ab_integer64(run, "dim"), before = 0;
    if (dim < 0) dim += out->ndim;
    for (int i = 0; i < which; i++) before += run->io->in[i]->shape.dim[dim];
    const int64_t mine = run->io->in[which]->shape.dim[dim], inner = inner_of(out, dim);
    const int64_t at = k / inner % out->dim[dim] - before, outer = k / inner / out->dim[dim];
    return at < 0 || at >= mine ? -1 : (outer * mine + at) * inner + k % inner;
}

static int64_t select_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *in = &run->io->in[which]->shape;
    const int64_t dim = ab_integer64(run, "dim"), inner = inner_of(in, dim);
    int64_t index = ab_integer64(run, "index");
    if (index < 0) index += in->dim[dim];
    return (k / inner * in->dim[dim] + index) * inner + k % inner;
}

static int64_t upsample_source(const ab_op_run *run, int which, int64_t k) {
    const ab_shape *in = &run->io->in[which]->shape, *out = result_shape(run);
    const int64_t c = k % out->dim[3], x = k / out->dim[3] % out->dim[2],
                  y = k / (out->dim[3] * out->dim[2]) % out->dim[1],
                  image = k / (out->dim[3] * out->dim[2] * out->dim[1]);
    const int64_t from_x = x / (out->dim[2] / in->dim[2]), from_y = y / (out->dim[1] / in->dim[1]);
    return ((image * in->dim[1] + from_y) * in->dim[2] + from_x) * in->dim[3] + c;
}

COPIES(concat)
COPIES(select)
COPIES(upsample)

/* ---- selection by mask ----------------------------------------------------------------------- */

static bool hit(const ab_op_run *run, const ab_tensor *mask, int64_t k) {
    const ab_shape *out = result_shape(run);
    const double equals = ab_number64(run, "equals");
    if (!mask) { /* causal: the last row attends to every column */
        const int64_t rows = out->dim[out->ndim - 2], columns = out->dim[out->ndim - 1];
        return k % columns + rows > columns + k / columns % rows;
    }
    const double x = ab_read64(mask, ab_broadcast64(&mask->shape, out, k));
    return isnan(equals) ? x != 0 : x == equals;
}

static int64_t where_source(const ab_op_run *run, int which, int64_t k) {
    if (which == 0 || hit(run, run->io->in[0], k) != (which == 1)) return -1;
    return ab_broadcast64(&run->io->in[which]->shape, result_shape(run), k);
}

static int64_t masked_fill_source(const ab_op_run *run, int which, int64_t k) {
    return which > 0 || hit(run, run->io->in[1], k) ? -1 : k;
}

COPIES(where)

static bool masked_fill_several(const ab_op_run *run, int wrote, const int64_t *place, int n,
                                ab_element64 *result) {
    for (int i = 0; !run->backward && i < n; i++)
        if (masked_fill_source(run, 0, place[i]) < 0) ab_add64(&result[i], ab_number64(run, "value"));
    return several_copies(run, wrote, place, n, result, masked_fill_source);
}

const ab_element64_kind ab_element64_masked_fill = {.op = &ab_op_masked_fill, .several = masked_fill_several};

/* ---- dropout --------------------------------------------------------------------------------- */

static bool dropped(const ab_op_run *run, const ab_tensor *from, int64_t i, ab_element64 *e) {
    const double factor = ab_dropout_mask64(run, ab_number64(run, "p"), i);
    ab_add64(e, factor == 0 ? 0 : factor * ab_read64(from, i));
    return true;
}

static bool dropout_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    return dropped(run, run->io->in[0], i, e);
}

static bool dropout_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    return (void)wrote, dropped(run, run->io->dout, i, e);
}

const ab_element64_kind ab_element64_dropout = {
    .op = &ab_op_dropout, .forward = dropout_forward, .backward = dropout_backward};
