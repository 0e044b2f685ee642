/* Second opinions on products: linear, conv2d, matmul, attention; and embedding, whose gradient is a sum. */
#include "probes/element64.h"
#include "probes/operands.h"

#include <stdlib.h>

/* ---- linear and conv2d ------------------------------------------------------------------------------------- */

static bool dot(const ab_op_run *run, ab_dot_pass pass, int64_t i, ab_element64 *e) {
    ab_operands operands;
    if (!ab_operands_of(run, pass, &operands) || operands.products < 1) return false;
    float *a = malloc(2 * (size_t)operands.products * sizeof *a);
    if (!a) return false;
    float *b = a + operands.products;
    int64_t n = ab_operands_gather(&operands, i, a, b);
    for (int64_t k = 0; k < n; k++) ab_add64(e, (double)a[k] * (double)b[k]);
    free(a);
    return true;
}

static bool product_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    if (!dot(run, AB_DOT_FORWARD, i, e)) return false;
    if (run->io->param[1]) ab_add64(e, ab_read64(run->io->param[1], i % ab_last64(run->io->out)));
    return true;
}

static bool product_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const ab_tensor *dout = run->io->dout;
    const int64_t channels = ab_last64(dout);
    if (wrote == AB_WROTE_DIN) return dot(run, AB_DOT_BACKWARD_DATA, i, e);
    if (wrote == AB_WROTE_DPARAM) return dot(run, AB_DOT_BACKWARD_WEIGHTS, i, e);
    for (int64_t row = 0; row < ab_tensor_count(dout) / channels; row++)
        ab_add64(e, ab_read64(dout, row * channels + i));
    return true;
}

const ab_element64_kind ab_element64_linear = {&ab_op_linear, product_forward, product_backward};
const ab_element64_kind ab_element64_conv2d = {&ab_op_conv2d, product_forward, product_backward};

/* ---- matmul ------------------------------------------------------------------------------------------------ */

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

/* Matrix of an operand that matrix `item` of the result uses. */
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

/* da = dout b^T, db = a^T dout, summed over the matrices of the result that use the element's. */
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

const ab_element64_kind ab_element64_matmul = {&ab_op_matmul, matmul_forward, matmul_backward};

/* ---- embedding --------------------------------------------------------------------------------------------- */

static bool embedding_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    const int64_t width = ab_last64(run->io->out), id = (int64_t)ab_read64(run->io->in[0], i / width);
    ab_add64(e, ab_read64(run->io->param[0], id * width + i % width));
    return true;
}

static bool embedding_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    const ab_tensor *ids = run->io->in[0], *dout = run->io->dout;
    const int64_t width = ab_last64(dout);
    if (wrote != AB_WROTE_DPARAM || !ids) return false;
    for (int64_t t = 0; t < ab_tensor_count(ids); t++)
        if ((int64_t)ab_read64(ids, t) == i / width) ab_add64(e, ab_read64(dout, t * width + i % width));
    return true;
}

const ab_element64_kind ab_element64_embedding = {&ab_op_embedding, embedding_forward, embedding_backward};

/* ---- attention --------------------------------------------------------------------------------------------- */

/* [batch, tokens, parts x heads x width] or [batch, heads, tokens, width]. */
typedef struct heads {
    const ab_tensor *tensor;
    int64_t batch_step, head_step, row_step, offset, rows, width;
} heads;

typedef struct attention {
    heads q, k, v, dout;
    int64_t heads;
    const ab_tensor *mask;
    bool causal;
    double scale, masked;
} attention;

static heads heads_of(const ab_tensor *tensor, int64_t count, int64_t part, int64_t parts) {
    const ab_shape *s = &tensor->shape;
    heads h = {.tensor = tensor, .rows = s->dim[s->ndim - 2]};
    h.width = s->ndim == 4 ? s->dim[3] : s->dim[2] / parts / count;
    h.row_step = s->ndim == 4 ? h.width : s->dim[2];
    h.head_step = s->ndim == 4 ? h.rows * h.width : h.width;
    h.batch_step = s->ndim == 4 ? s->dim[1] * h.head_step : h.rows * h.row_step;
    h.offset = part * count * h.width;
    return h;
}

/* False with dropout, whose coins are not known here. */
static bool open_attention(const ab_op_run *run, attention *t) {
    const ab_op_io *io = run->io;
    const bool packed = !io->in[1] || !io->in[2];
    int64_t count;
    double dropout;
    memcpy(&dropout, ab_attr64(run, "dropout_p"), sizeof dropout);
    memcpy(&count, ab_attr64(run, "num_heads"), sizeof count);
    memcpy(&t->scale, ab_attr64(run, "scale"), sizeof t->scale);
    memcpy(&t->masked, ab_attr64(run, "mask_value"), sizeof t->masked);
    memcpy(&t->causal, ab_attr64(run, "is_causal"), sizeof t->causal);
    if (dropout > 0) return false;
    t->heads = io->in[0]->shape.ndim == 4 ? io->in[0]->shape.dim[1] : count;
    t->q = heads_of(io->in[0], count, 0, packed ? 3 : 1);
    t->k = heads_of(io->in[packed ? 0 : 1], count, packed ? 1 : 0, packed ? 3 : 1);
    t->v = heads_of(io->in[packed ? 0 : 2], count, packed ? 2 : 0, packed ? 3 : 1);
    t->dout = heads_of(run->backward ? io->dout : io->out, count, 0, 1);
    t->mask = packed ? io->in[1] : io->in[3];
    if (t->scale == 0) t->scale = 1 / sqrt((double)t->q.width);
    if (t->masked == 0) t->masked = -(double)INFINITY;
    return t->q.rows * t->k.rows * t->q.width <= AB_ELEMENT64_WORK;
}

static double head_at(const heads *h, int64_t b, int64_t head, int64_t row, int64_t d) {
    return ab_read64(h->tensor, h->offset + b * h->batch_step + head * h->head_step + row * h->row_step + d);
}

static double products(const heads *a, int64_t i, const heads *b, int64_t j, int64_t batch, int64_t head,
                       ab_element64 *e) {
    ab_element64 sum = {.value = 0};
    for (int64_t d = 0; d < a->width; d++)
        ab_add64(&sum, head_at(a, batch, head, i, d) * head_at(b, batch, head, j, d));
    ab_see64(e, sum.largest);
    return sum.value;
}

static double score(const attention *t, int64_t b, int64_t head, int64_t i, int64_t j, ab_element64 *e) {
    double s = products(&t->q, i, &t->k, j, b, head, e) * t->scale;
    const ab_shape all = {.ndim = 4, .dim = {b + 1, t->heads, t->q.rows, t->k.rows}};
    if (t->mask) {
        double m =
            ab_read64(t->mask, ab_broadcast64(&t->mask->shape, &all,
                                              ((b * t->heads + head) * t->q.rows + i) * t->k.rows + j));
        s += t->mask->format ? m : m == 0 ? t->masked : 0;
    }
    return t->causal && j > i ? s + t->masked : s;
}

/* The largest score of a query's row, and the logarithm of the sum of their exponentials. */
static double log_sum(const attention *t, int64_t b, int64_t head, int64_t i, ab_element64 *e) {
    double most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < t->k.rows; j++) most = fmax(most, score(t, b, head, i, j, e));
    if (most == -(double)INFINITY) return (double)INFINITY; /* nobody takes part: probabilities are 0 */
    for (int64_t j = 0; j < t->k.rows; j++) sum += exp(score(t, b, head, i, j, e) - most);
    return most + log(sum);
}

static double probability(const attention *t, int64_t b, int64_t head, int64_t i, int64_t j, double logarithm,
                          ab_element64 *e) {
    return exp(score(t, b, head, i, j, e) - logarithm);
}

/* Where element i of a tensor of heads lies; packed ones say which part, too. */
typedef struct spot {
    int64_t batch, head, row, d, part;
} spot;

static spot spot_of(const heads *h, int64_t count, int64_t i) {
    spot s = {.batch = i / h->batch_step};
    i %= h->batch_step;
    if (h->tensor->shape.ndim == 4) {
        s.head = i / h->head_step;
        s.row = i % h->head_step / h->width;
    } else {
        s.row = i / h->row_step;
        s.head = i % h->row_step / h->width;
    }
    s.d = i % h->width;
    s.part = s.head / count;
    s.head %= count;
    return s;
}

static bool attention_forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    attention t;
    if (!open_attention(run, &t)) return false;
    const spot s = spot_of(&t.dout, t.heads, i);
    const double logarithm = log_sum(&t, s.batch, s.head, s.row, e);
    for (int64_t j = 0; j < t.k.rows; j++)
        ab_add64(e, probability(&t, s.batch, s.head, s.row, j, logarithm, e) *
                        head_at(&t.v, s.batch, s.head, j, s.d));
    return true;
}

/* The gradient of the score of query i and key j: p (dp - sum of p dp over the row). */
static double score_gradient(const attention *t, const spot *s, int64_t i, int64_t j, double logarithm,
                             ab_element64 *e) {
    double delta = 0;
    for (int64_t c = 0; c < t->k.rows; c++)
        delta += probability(t, s->batch, s->head, i, c, logarithm, e) *
                 products(&t->dout, i, &t->v, c, s->batch, s->head, e);
    double by = products(&t->dout, i, &t->v, j, s->batch, s->head, e) - delta;
    return probability(t, s->batch, s->head, i, j, logarithm, e) * by * t->scale;
}

static bool attention_backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    attention t;
    const bool packed = !run->io->in[1] || !run->io->in[2];
    if (!open_attention(run, &t)) return false;
    const heads *own = wrote == AB_WROTE_DIN ? &t.q : wrote == AB_WROTE_DIN + 1 ? &t.k : &t.v;
    const spot s = spot_of(own, t.heads, i);
    const int64_t part = packed ? s.part : wrote - AB_WROTE_DIN;
    if (t.q.rows * t.k.rows * t.k.rows * t.q.width > AB_ELEMENT64_WORK) return false;
    const int64_t first = part == 0 ? s.row : 0, end = part == 0 ? s.row + 1 : t.q.rows;
    for (int64_t q = first; q < end; q++) {
        const double logarithm = log_sum(&t, s.batch, s.head, q, e);
        if (part == 2)
            ab_add64(e, probability(&t, s.batch, s.head, q, s.row, logarithm, e) *
                            head_at(&t.dout, s.batch, s.head, q, s.d));
        if (part == 1)
            ab_add64(e,
                     score_gradient(&t, &s, q, s.row, logarithm, e) * head_at(&t.q, s.batch, s.head, q, s.d));
        for (int64_t j = 0; part == 0 && j < t.k.rows; j++)
            ab_add64(e, score_gradient(&t, &s, q, j, logarithm, e) * head_at(&t.k, s.batch, s.head, j, s.d));
    }
    return true;
}

const ab_element64_kind ab_element64_scaled_dot_product_attention = {&ab_op_scaled_dot_product_attention,
                                                                     attention_forward, attention_backward};
