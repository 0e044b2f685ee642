/* fp64 references of products: linear, conv2d, matmul; and of embeddings, whose gradients are sums. */
#include "probes/element64/element64.h"
#include "probes/operands.h"

#include <stdlib.h>

/* ---- linear and conv2d ----------------------------------------------------------------------- */

/* A factor's elements: read in place if they are doubles. */
typedef struct factor {
    const ab_tensor *tensor;
    const double *direct;
} factor;

static factor factor_of(const ab_tensor *tensor) {
    return (factor){tensor, tensor->format == &ab_format_stored64 ? tensor->data : NULL};
}

static double factor_at(const factor *f, int64_t i) {
    return f->direct ? f->direct[i] : ab_read64(f->tensor, i);
}

static bool dots(const ab_op_run *run, ab_dot_pass pass, const int64_t *place, int count,
                 ab_element64 *result) {
    ab_operands operands;
    if (!ab_operands_of(run, pass, &operands) || operands.products < 1) return false;
    int64_t *a = malloc(2 * (size_t)operands.products * sizeof *a);
    if (!a) return false;
    int64_t *b = a + operands.products;
    const factor first = factor_of(pass == AB_DOT_FORWARD ? operands.x : operands.dout),
                 second = factor_of(pass == AB_DOT_BACKWARD_WEIGHTS ? operands.x : operands.weight);
    for (int i = 0; i < count; i++) {
        ab_element64 *e = &result[i];
        const int64_t n = ab_operands_places(&operands, place[i], a, b);
        for (int64_t k = 0; k < n; k++) ab_add64(e, factor_at(&first, a[k]) * factor_at(&second, b[k]));
    }
    free(a);
    return true;
}

static void add_bias(const ab_op_run *run, const int64_t *place, int count, ab_element64 *result) {
    for (int i = 0; i < count && run->io->param[1]; i++)
        ab_add64(&result[i], ab_read64(run->io->param[1], place[i] % ab_last_dim64(run->io->out)));
}

static void bias_gradient(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const ab_tensor *dout = run->io->dout;
    const int64_t channels = ab_last_dim64(dout);
    for (int64_t row = 0; row < ab_tensor_count(dout) / channels; row++)
        ab_add64(e, ab_read64(dout, row * channels + i));
}

static bool product_several(const ab_op_run *run, int wrote, const int64_t *place, int n,
                            ab_element64 *result) {
    if (!run->backward) {
        if (!dots(run, AB_DOT_FORWARD, place, n, result)) return false;
        add_bias(run, place, n, result);
        return true;
    }
    if (wrote == AB_WROTE_DIN) return dots(run, AB_DOT_BACKWARD_DATA, place, n, result);
    if (wrote == AB_WROTE_DPARAM) return dots(run, AB_DOT_BACKWARD_WEIGHTS, place, n, result);
    for (int i = 0; i < n; i++) bias_gradient(run, place[i], &result[i]);
    return true;
}

const ab_element64_kind ab_element64_linear = {.op = &ab_op_linear, .several = product_several};
const ab_element64_kind ab_element64_conv2d = {.op = &ab_op_conv2d, .several = product_several};

/* ---- matmul ---------------------------------------------------------------------------------- */

typedef struct product {
    ab_shape batch; /* of the result */
    int64_t m, k, n;
} product;

static product product_of(const ab_op_run *run) {
    const ab_shape *a = &run->io->in[0]->shape,
                   *out = run->backward ? &run->io->dout->shape : &run->io->out->shape;
    product p = {.batch = *out};
    p.batch.ndim -= 2;
    p.m = out->dim[out->ndim - 2];
    p.n = out->dim[out->ndim - 1];
    p.k = a->dim[a->ndim - 1];
    return p;
}

/* Index of the operand's matrix that matrix `item` of the result uses. */
static int64_t matrix_of(const product *p, const ab_tensor *operand, int64_t item) {
    ab_shape batch = operand->shape;
    batch.ndim -= 2;
    return ab_broadcast64(&batch, &p->batch, item);
}

static bool matmul_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const product p = product_of(run);
    const ab_tensor *a = run->io->in[0], *b = run->io->in[1];
    const int64_t item = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    const int64_t of_a = matrix_of(&p, a, item) * p.m * p.k, of_b = matrix_of(&p, b, item) * p.k * p.n;
    for (int64_t k = 0; k < p.k; k++)
        ab_add64(e, ab_read64(a, of_a + row * p.k + k) * ab_read64(b, of_b + k * p.n + column));
    return true;
}

/* da = dout b^T, db = a^T dout, summed over the matrices of the result that use the element's matrix. */
static bool matmul_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const product p = product_of(run);
    const bool by_a = wrote == AB_WROTE_DIN;
    const ab_tensor *dout = run->io->dout, *own = run->io->in[by_a ? 0 : 1],
                    *other = run->io->in[by_a ? 1 : 0];
    const int64_t size = by_a ? p.m * p.k : p.k * p.n, width = by_a ? p.k : p.n, inner = by_a ? p.n : p.m;
    const int64_t row = i % size / width, column = i % width, items = ab_shape_count(&p.batch);
    if (items * inner > AB_ELEMENT64_WORK) return false;
    for (int64_t item = 0; item < items; item++) {
        if (matrix_of(&p, own, item) != i / size) continue;
        const int64_t from = matrix_of(&p, other, item) * (by_a ? p.k * p.n : p.m * p.k),
                      of = item * p.m * p.n;
        for (int64_t t = 0; t < inner; t++)
            ab_add64(e,
                     by_a ? ab_read64(dout, of + row * p.n + t) * ab_read64(other, from + column * p.n + t)
                          : ab_read64(other, from + t * p.k + row) * ab_read64(dout, of + t * p.n + column));
    }
    return true;
}

const ab_element64_kind ab_element64_matmul = {
    .op = &ab_op_matmul, .forward = matmul_forward, .backward = matmul_backward};

/* ---- embedding ------------------------------------------------------------------------------- */

static bool embedding_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const int64_t width = ab_last_dim64(run->io->out), id = (int64_t)ab_read64(run->io->in[0], i / width);
    ab_add64(e, ab_read64(run->io->param[0], id * width + i % width));
    return true;
}

static bool embedding_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const ab_tensor *ids = run->io->in[0], *dout = run->io->dout;
    const int64_t width = ab_last_dim64(dout);
    if (wrote != AB_WROTE_DPARAM || !ids) return false;
    for (int64_t t = 0; t < ab_tensor_count(ids); t++)
        if ((int64_t)ab_read64(ids, t) == i / width) ab_add64(e, ab_read64(dout, t * width + i % width));
    return true;
}

const ab_element64_kind ab_element64_embedding = {
    .op = &ab_op_embedding, .forward = embedding_forward, .backward = embedding_backward};

/* Input token that token t of the result comes from; -1: the class token. */
static int64_t input_token(const ab_op_run *run, const ab_shape *out, int64_t t) {
    const int64_t position = t % out->dim[1] - ab_boolean64(run, "class_token"),
                  tokens = run->io->in[0]->shape.dim[1];
    return position < 0 ? -1 : t / out->dim[1] * tokens + position;
}

static bool positional_embedding_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const ab_shape *out = &run->io->out->shape;
    const int64_t width = out->dim[2], t = i / width, token = input_token(run, out, t);
    ab_add64(e, token < 0 ? ab_read64(run->io->param[1], i % width)
                          : ab_read64(run->io->in[0], token * width + i % width));
    ab_add64(e, ab_read64(run->io->param[0], t % out->dim[1] * width + i % width));
    return true;
}

static bool positional_embedding_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const ab_tensor *dout = run->io->dout;
    const ab_shape *out = &dout->shape;
    const int64_t width = out->dim[2], row = i / width;
    for (int64_t t = 0; t < out->dim[0] * out->dim[1]; t++) {
        const int64_t token = input_token(run, out, t);
        const bool mine = wrote == AB_WROTE_DIN      ? token == row
                          : wrote == AB_WROTE_DPARAM ? t % out->dim[1] == row
                                                     : token < 0;
        if (mine) ab_add64(e, ab_read64(dout, t * width + i % width));
    }
    return true;
}

const ab_element64_kind ab_element64_positional_embedding = {.op = &ab_op_positional_embedding,
                                                             .forward = positional_embedding_forward,
                                                             .backward = positional_embedding_backward};
