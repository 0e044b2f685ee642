/* fp64 reference of attention: a query's row of scores and probabilities in double, recomputed for each
 * element; gradients of keys and values recompute those of all queries of the head. */
#include "probes/element64/element64.h"

#include <stdlib.h>

/* ---- tensors of heads ------------------------------------------------------------------------ */

/* [batch, tokens, parts x heads x width] or [batch, heads, tokens, width]. */
typedef struct heads {
    const ab_tensor *tensor;
    int64_t batch_step, head_step, row_step, offset, rows, width;
} heads;

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

/* Position of element i in a tensor of heads; for packed tensors also the part. */
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

/* ---- the op ---------------------------------------------------------------------------------- */

enum { Q, K, V, DOUT, PROBABILITY, DPROBABILITY, ARRAYS };

typedef struct attention {
    const ab_op_run *run;
    heads of[4]; /* q, k, v, dout */
    int64_t count, batch, head;
    const ab_tensor *mask;
    bool causal;
    double scale, masked, dropout;
    double *array[ARRAYS]; /* one head's rows; one query's probabilities and their gradients */
} attention;

static void shapes_of(const ab_op_run *run, attention *t) {
    const ab_op_io *io = run->io;
    const bool packed = !io->in[1] || !io->in[2];
    const int parts = packed ? 3 : 1;
    t->run = run;
    t->count = io->in[0]->shape.ndim == 4 ? io->in[0]->shape.dim[1] : ab_integer64(run, "num_heads");
    for (int i = 0; i < 3; i++) t->of[i] = heads_of(io->in[packed ? 0 : i], t->count, packed ? i : 0, parts);
    t->of[DOUT] = heads_of(run->backward ? io->dout : io->out, t->count, 0, 1);
    t->mask = packed ? io->in[1] : io->in[3];
    t->causal = ab_boolean64(run, "is_causal");
    t->scale = ab_number64(run, "scale");
    t->masked = ab_number64(run, "mask_value");
    t->dropout = ab_number64(run, "dropout_p");
    if (t->scale == 0) t->scale = 1 / sqrt((double)t->of[Q].width);
    if (t->masked == 0) t->masked = -(double)INFINITY;
}

static void read_head(const attention *t, int which) {
    const heads *h = &t->of[which];
    for (int64_t row = 0; row < h->rows; row++)
        for (int64_t d = 0; d < h->width; d++)
            t->array[which][row * h->width + d] =
                ab_read64(h->tensor, h->offset + t->batch * h->batch_step + t->head * h->head_step +
                                         row * h->row_step + d);
}

/* Reads the rows of one head. False if out of memory, or the head is too large. */
static bool open_head(attention *t, const spot *s) {
    const int64_t keys = t->of[K].rows;
    int64_t size[ARRAYS] = {[PROBABILITY] = keys, [DPROBABILITY] = keys}, all = 0;
    t->batch = s->batch;
    t->head = s->head;
    if (t->of[Q].rows * keys * t->of[Q].width > AB_ELEMENT64_WORK) return false;
    for (int i = 0; i < 4; i++) size[i] = t->of[i].rows * t->of[i].width;
    for (int i = 0; i < ARRAYS; i++) all += size[i];
    double *next = calloc((size_t)all, sizeof *next);
    if (!next) return false;
    for (int i = 0; i < ARRAYS; next += size[i++]) t->array[i] = next;
    for (int i = 0; i < (t->run->backward ? 4 : 3); i++) read_head(t, i);
    return true;
}

/* Dot product of a row of one tensor with a row of another. */
static double product(const attention *t, int a, int64_t i, int b, int64_t j, ab_element64 *e) {
    const int64_t width = t->of[a].width;
    const double *x = t->array[a] + i * width, *y = t->array[b] + j * width;
    ab_element64 sum = {.value = 0};
    for (int64_t d = 0; d < width; d++) ab_add64(&sum, x[d] * y[d]);
    ab_track_max64(e, sum.largest);
    return sum.value;
}

static int64_t score_index(const attention *t, int64_t i, int64_t j) {
    return ((t->batch * t->count + t->head) * t->of[Q].rows + i) * t->of[K].rows + j;
}

static double score(const attention *t, int64_t i, int64_t j, ab_element64 *e) {
    double s = product(t, Q, i, K, j, e) * t->scale;
    const ab_shape all = {.ndim = 4, .dim = {t->batch + 1, t->count, t->of[Q].rows, t->of[K].rows}};
    if (t->mask) {
        const double m = ab_read64(t->mask, ab_broadcast64(&t->mask->shape, &all, score_index(t, i, j)));
        s += t->mask->format ? m : m == 0 ? t->masked : 0;
    }
    return t->causal && j > i ? s + t->masked : s;
}

/* PROBABILITY of a query; zeros if every key is masked. */
static void compute_probabilities(const attention *t, int64_t i, ab_element64 *e) {
    double *p = t->array[PROBABILITY], most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j < t->of[K].rows; j++) {
        p[j] = score(t, i, j, e);
        if (!(p[j] <= most)) most = p[j];
    }
    for (int64_t j = 0; j < t->of[K].rows; j++) {
        p[j] = most == -(double)INFINITY ? 0 : exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t j = 0; j < t->of[K].rows; j++) p[j] = sum > 0 || isnan(sum) ? p[j] / sum : 0;
}

static double mask_factor(const attention *t, int64_t i, int64_t j) {
    return ab_dropout_mask64(t->run, t->dropout, score_index(t, i, j));
}

/* Gradients of a query's scores, overwriting DPROBABILITY: p (dp - sum of p dp) scale. */
static void compute_score_gradients(const attention *t, int64_t i, ab_element64 *e) {
    const double *p = t->array[PROBABILITY];
    double *d = t->array[DPROBABILITY], delta = 0;
    for (int64_t j = 0; j < t->of[K].rows; j++) {
        d[j] = product(t, DOUT, i, V, j, e) * mask_factor(t, i, j);
        delta += p[j] * d[j];
    }
    for (int64_t j = 0; j < t->of[K].rows; j++) d[j] = p[j] * (d[j] - delta) * t->scale;
}

static double at(const attention *t, int which, int64_t row, int64_t d) {
    return t->array[which][row * t->of[which].width + d];
}

/* ---- elements -------------------------------------------------------------------------------- */

static bool forward(const ab_op_run *run, int64_t i, ab_element64 *e) {
    attention t;
    shapes_of(run, &t);
    const spot s = spot_of(&t.of[DOUT], t.count, i);
    if (!open_head(&t, &s)) return false;
    compute_probabilities(&t, s.row, e);
    for (int64_t j = 0; j < t.of[K].rows; j++)
        ab_add64(e, t.array[PROBABILITY][j] * mask_factor(&t, s.row, j) * at(&t, V, j, s.d));
    free(t.array[Q]);
    return true;
}

/* Contribution of query q to the gradient of q, k or v (part). */
static void add_query(const attention *t, int64_t part, const spot *s, int64_t q, ab_element64 *e) {
    compute_probabilities(t, q, e);
    if (part == V) {
        ab_add64(e, t->array[PROBABILITY][s->row] * mask_factor(t, q, s->row) * at(t, DOUT, q, s->d));
        return;
    }
    compute_score_gradients(t, q, e);
    if (part == K) ab_add64(e, t->array[DPROBABILITY][s->row] * at(t, Q, q, s->d));
    for (int64_t j = 0; part == Q && j < t->of[K].rows; j++)
        ab_add64(e, t->array[DPROBABILITY][j] * at(t, K, j, s->d));
}

static bool backward(const ab_op_run *run, int wrote, int64_t i, ab_element64 *e) {
    attention t;
    shapes_of(run, &t);
    const bool packed = !run->io->in[1] || !run->io->in[2];
    const int64_t input = wrote - AB_WROTE_DIN;
    if (packed ? input > 0 : input > V) return true; /* a mask has no gradient */
    const spot s = spot_of(&t.of[packed ? 0 : input], t.count, i);
    const int64_t part = packed ? s.part : input;
    if (!open_head(&t, &s)) return false;
    if (part == Q)
        add_query(&t, part, &s, s.row, e);
    else
        for (int64_t q = 0; q < t.of[Q].rows; q++) add_query(&t, part, &s, q, e);
    free(t.array[Q]);
    return true;
}

/* ---- all elements ---------------------------------------------------------------------------- */

static int64_t index_of(const attention *t, int which, int64_t row, int64_t d) {
    const heads *h = &t->of[which];
    return h->offset + t->batch * h->batch_step + t->head * h->head_step + row * h->row_step + d;
}

/* A query's row of the output. */
static void forward_query(const attention *t, int64_t q, ab_element64 *result) {
    ab_element64 seen = {.value = 0};
    compute_probabilities(t, q, &seen);
    for (int64_t j = 0; j < t->of[K].rows; j++) {
        const double p = t->array[PROBABILITY][j] * mask_factor(t, q, j);
        for (int64_t d = 0; d < t->of[V].width; d++)
            ab_add64(&result[index_of(t, DOUT, q, d)], p * at(t, V, j, d));
    }
}

/* Contribution of a query to the gradients of the wanted parts of q, k and v. */
static void backward_query(const attention *t, int64_t q, const bool wanted[3], ab_element64 *result) {
    ab_element64 seen = {.value = 0};
    compute_probabilities(t, q, &seen);
    for (int64_t j = 0; wanted[V] && j < t->of[K].rows; j++)
        for (int64_t d = 0; d < t->of[V].width; d++)
            ab_add64(&result[index_of(t, V, j, d)],
                     t->array[PROBABILITY][j] * mask_factor(t, q, j) * at(t, DOUT, q, d));
    compute_score_gradients(t, q, &seen);
    for (int64_t j = 0; j < t->of[K].rows; j++)
        for (int64_t d = 0; d < t->of[Q].width; d++) {
            const double by = t->array[DPROBABILITY][j];
            if (wanted[Q]) ab_add64(&result[index_of(t, Q, q, d)], by * at(t, K, j, d));
            if (wanted[K]) ab_add64(&result[index_of(t, K, j, d)], by * at(t, Q, q, d));
        }
}

static bool all_elements(const ab_op_run *run, int wrote, ab_element64 *result) {
    const bool packed = !run->io->in[1] || !run->io->in[2];
    const int input = wrote - AB_WROTE_DIN;
    const bool wanted[3] = {packed || input == Q, packed || input == K, packed || input == V};
    attention t;
    shapes_of(run, &t);
    if (run->backward && (packed ? input > 0 : input > V)) return true; /* a mask has no gradient */
    spot s = {.batch = 0};
    for (; s.batch < run->io->in[0]->shape.dim[0]; s.batch++)
        for (s.head = 0; s.head < t.count; s.head++) {
            if (!open_head(&t, &s)) return false;
            for (int64_t q = 0; q < t.of[Q].rows; q++)
                if (run->backward)
                    backward_query(&t, q, wanted, result);
                else
                    forward_query(&t, q, result);
            free(t.array[Q]);
        }
    return true;
}

static bool several(const ab_op_run *run, int wrote, const int64_t *place, int n, ab_element64 *result) {
    const ab_tensor *whole = run->backward ? run->io->in[wrote - AB_WROTE_DIN] : run->io->out;
    if (n >= ab_tensor_count(whole)) return all_elements(run, wrote, result);
    for (int i = 0; i < n; i++)
        if (!(run->backward ? backward(run, wrote, place[i], &result[i])
                            : forward(run, place[i], &result[i])))
            return false;
    return true;
}

const ab_element64_kind ab_element64_scaled_dot_product_attention = {
    .op = &ab_op_scaled_dot_product_attention, .several = several};
