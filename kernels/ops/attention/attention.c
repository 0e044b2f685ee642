/* Attention in blocks of queries; see attention.h.
 *
 * With scores S = scale q k^T + mask, P = exp(S - log_sum): out = P v; dv = P^T dout; dP = dout v^T; dS = P
 * (dP - sum over keys of P dP); dq = scale dS k; dk = scale dS^T q. Dropout multiplies dP, and P where it
 * multiplies v. */
#include "kernels/ops/attention/attention.h"

#include "kernels/format/convert.h"
#include "kernels/ops/attention/vec_head.h"
#include "kernels/ops/attention/vec_rows.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/bf16_unit.h"
#include "kernels/ops/product/parts.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <string.h>

AB_BY_ISA(ab_vec_head, ab_vec_head)
AB_BY_ISA(ab_vec_rows, ab_vec_rows)

enum { BLOCK_SCORES = 64 * 1024, MIN_QUERIES = 16, OPERANDS = 4, RESULTS = 3 };

/* Scratch of a thread: score blocks, a mask row, fp32 copies of half operands (q, k, v, dout), results before
 * rounding. */
typedef struct scratch {
    float *p, *dp, *dropped, *mask;
    float *operand[OPERANDS], *result[RESULTS];
} scratch;

/* One head's matrices. */
typedef struct matrix {
    const float *data;
    int64_t step;
} matrix;

typedef struct head {
    const ab_attention *t;
    int64_t batch, head, block, step; /* step: from one row of scores to the next */
    scratch s;
    bool backward, pairs, in_place; /* in_place: and operands and results are not copied */
    matrix q, k, v, dout;
    float *result[RESULTS]; /* out; or dq, dk, dv */
    int64_t result_step[RESULTS];
} head;

static int64_t block_queries(const ab_attention *t) {
    int64_t most = ab_max64(MIN_QUERIES, BLOCK_SCORES / t->in[1].rows);
    return ab_min64(most, t->in[0].rows);
}

ab_gemm ab_attention_product(const ab_attention *t) {
    return (ab_gemm){.rows = block_queries(t), .columns = t->in[1].rows, .inner = t->in[0].width};
}

static int64_t scores_step(const ab_attention *t) {
    return ab_div_up(t->in[1].rows, AB_SCORES_STEP) * AB_SCORES_STEP;
}

/* Scores of a head that is computed at once. */
static int64_t head_scores(const ab_attention *t) {
    const int64_t queries = t->in[0].rows, keys = t->in[1].rows;
    if (queries > AB_HEAD_MOST || keys > AB_HEAD_MOST) return 0;
    return keys * ab_div_up(queries, AB_HEAD_STEP) * AB_HEAD_STEP;
}

static float *take(char **memory, int64_t floats) {
    float *piece = (float *)(void *)*memory;
    *memory += ab_floats_bytes(floats);
    return piece;
}

/* Elements of one head, if it needs a copy. */
static int64_t copied(const ab_heads *h) {
    return h->tensor && !ab_is_f32(h->tensor) ? h->rows * h->width : 0;
}

/* Results that are not wanted take no space. In the forward pass, out uses the first. */
static int64_t result_floats(const ab_attention *t, int i) {
    int64_t of_out = i == 0 ? copied(&t->out) : 0;
    return ab_max64(of_out, copied(&t->din[i]));
}

static size_t scratch_floats(const ab_attention *t, int64_t size[4 + OPERANDS + RESULTS]) {
    int64_t scores = ab_max64(block_queries(t) * scores_step(t), head_scores(t));
    size_t bytes = 0;
    size[0] = size[1] = scores;
    size[2] = t->may_drop ? scores : 0;
    size[3] = t->mask.tensor ? t->mask.keys : 0;
    for (int i = 0; i < 3; i++) size[4 + i] = copied(&t->in[i]);
    size[7] = copied(&t->dout);
    for (int i = 0; i < RESULTS; i++) size[4 + OPERANDS + i] = result_floats(t, i);
    for (int i = 0; i < 4 + OPERANDS + RESULTS; i++) bytes += ab_floats_bytes(size[i]);
    return bytes;
}

size_t ab_attention_thread_bytes(const ab_attention *t) {
    int64_t size[4 + OPERANDS + RESULTS];
    return scratch_floats(t, size);
}

static scratch scratch_of(const ab_attention *t, int thread) {
    int64_t size[4 + OPERANDS + RESULTS];
    char *memory = (char *)t->exec->workspace + (size_t)thread * scratch_floats(t, size);
    scratch s = {take(&memory, size[0]), take(&memory, size[1]), NULL, NULL, {NULL}, {NULL}};
    s.dropped = take(&memory, size[2]);
    s.mask = take(&memory, size[3]);
    for (int i = 0; i < OPERANDS; i++) s.operand[i] = take(&memory, size[4 + i]);
    for (int i = 0; i < RESULTS; i++) s.result[i] = take(&memory, size[4 + OPERANDS + i]);
    return s;
}

/* ---- heads in tensors ------------------------------------------------------------------------ */

static int64_t first_of(const ab_heads *h, int64_t batch, int64_t number) {
    return h->offset + batch * h->batch_step + number * h->head_step;
}

/* The values of a head from element `at` on; read as AB_STORED_FP32 in all formats but the halves. */
static ab_panel_part part_of(const ab_heads *h, int64_t at) {
    const ab_values values = ab_values_of(h->tensor, NULL, NULL);
    return ab_panel_part_of(&values, at, h->row_step, h->rows, h->width);
}

static matrix read_head(const ab_heads *h, int64_t batch, int64_t number, float *buffer) {
    int64_t at = first_of(h, batch, number);
    if (ab_is_f32(h->tensor)) return (matrix){(const float *)h->tensor->data + at, h->row_step};
    const ab_panel_part part = part_of(h, at);
    if (part.stored == AB_STORED_FP32)
        ab_widen_rows(buffer, part.data, h->tensor->format, h->rows, h->width, h->row_step);
    else
        ab_vec_part_get()->read(buffer, h->width, &part);
    return (matrix){buffer, h->width};
}

static void place_result(head *x, int i, const ab_heads *h) {
    bool direct = h->tensor && ab_is_f32(h->tensor);
    x->result[i] = !h->tensor ? NULL
                   : direct   ? (float *)h->tensor->data + first_of(h, x->batch, x->head)
                              : x->s.result[i];
    x->result_step[i] = direct ? h->row_step : h->width;
}

static void store_result(const head *x, int i, const ab_heads *h) {
    if (!h->tensor || ab_is_f32(h->tensor)) return;
    ab_tensor to = *h->tensor;
    int64_t at = first_of(h, x->batch, x->head);
    const ab_panel_part part = part_of(h, at);
    if (!x->t->exec->observer && part.stored != AB_STORED_FP32) {
        ab_vec_part_get()->store(&part, x->result[i], h->width);
        return;
    }
    for (int64_t row = 0; row < h->rows; row++)
        ab_emit(x->t->exec, &to, at + row * h->row_step, x->result[i] + row * h->width, h->width);
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* Adds the mask to the scores of one query. */
static void add_mask(const head *x, int64_t query, float *score, int64_t keys) {
    const ab_mask *m = &x->t->mask;
    int64_t at = x->batch * m->step[0] + x->head * m->step[1] + query * m->step[2];
    if (!m->tensor->format) {
        const int32_t *takes_part = (const int32_t *)m->tensor->data + at;
        for (int64_t j = 0; j < keys; j++)
            if (!takes_part[j * m->step[3]]) score[j] += x->t->masked;
        return;
    }
    int64_t n = m->step[3] ? keys : 1;
    const float *bias = ab_read(m->tensor, at, n, x->s.mask);
    for (int64_t j = 0; j < keys; j++) score[j] += bias[m->step[3] ? j : 0];
}

/* Whether a query sees no keys behind its own position; with a finite mask_value it sees all of them. */
static bool is_triangle(const ab_attention *t) { return t->causal && isinf(t->masked); }

/* Number of keys visible to the queries [first, first + n). */
static int64_t visible_keys(const ab_attention *t, int64_t first, int64_t n) {
    return is_triangle(t) ? ab_min64(t->in[1].rows, first + n) : t->in[1].rows;
}

/* Masks the scores of one query that are visible. */
static void mask_row(const head *x, int64_t query, float *score, int64_t keys) {
    const ab_attention *t = x->t;
    const int64_t seen = t->causal ? ab_min64(keys, query + 1) : keys;
    if (is_triangle(t)) keys = seen;
    for (int64_t j = seen; j < keys; j++) score[j] += t->masked;
    if (t->mask.tensor) add_mask(x, query, score, keys);
}

/* The n rows of scores from query `first` on, or their gradients. */
static ab_score_rows rows_of(const head *x, float *value, int64_t first, int64_t n, int64_t keys) {
    const bool triangle = is_triangle(x->t);
    return (ab_score_rows){.value = value,
                           .rows = n,
                           .keys = keys,
                           .step = x->step,
                           .seen = triangle ? first + 1 : keys,
                           .slope = triangle};
}

static void scores(const head *x, int64_t first, int64_t n, int64_t keys) {
    const ab_attention *t = x->t;
    ab_gemm g = {.transpose_b = true,
                 .rows = n,
                 .columns = keys,
                 .inner = t->in[0].width,
                 .alpha = t->scale,
                 .a = x->q.data + first * x->q.step,
                 .lda = x->q.step,
                 .b = x->k.data,
                 .ldb = x->k.step,
                 .c = x->s.p,
                 .ldc = x->step,
                 .triangle = is_triangle(t) ? AB_TRIANGLE_C : AB_TRIANGLE_NONE,
                 .diagonal = first};
    ab_gemm_run(&g, t->exec->path, t->half);
}

/* Probabilities of a block of queries: from `log_sum` or, in the forward pass (`fresh`), computed and log_sum
 * written. */
static void block_probabilities(const head *x, int64_t first, int64_t n, int64_t keys, bool fresh) {
    const ab_attention *t = x->t;
    const int64_t at = (x->batch * t->heads + x->head) * t->in[0].rows + first;
    const ab_score_rows rows = rows_of(x, x->s.p, first, n, keys);
    const bool masks = t->mask.tensor || (t->causal && !is_triangle(t));
    float *log_sum = t->log_sum ? t->log_sum + at : NULL;
    scores(x, first, n, keys);
    for (int64_t i = 0; i < n && masks; i++) mask_row(x, first + i, x->s.p + i * x->step, keys);
    if (fresh)
        ab_vec_rows_get()->softmax(&rows, log_sum);
    else
        ab_vec_rows_get()->softmax_again(&rows, log_sum);
}

/* to = values with the dropout mask applied. */
static void drop(const head *x, float *to, const float *values, int64_t first, int64_t n, int64_t keys) {
    const ab_attention *t = x->t;
    int64_t row = (x->batch * t->heads + x->head) * t->in[0].rows + first;
    for (int64_t i = 0; i < n; i++)
        ab_vec_math_get()->dropout(to + i * x->step, values + i * x->step, &t->dropout,
                                   (row + i) * t->in[1].rows, keys);
}

/* The factor of v: probabilities after dropout. */
static const float *weights_of_values(const head *x, int64_t first, int64_t n, int64_t keys) {
    if (x->t->dropout.threshold == 0) return x->s.p;
    drop(x, x->s.dropped, x->s.p, first, n, keys);
    return x->s.dropped;
}

/* Adds the rows of a head to what is fetched ahead of its use: the hardware does not fetch short rows that
 * lie far apart. Not if they are so many that they would displace what is in use. */
static void add_fetch(ab_fetches *f, const ab_heads *h, int64_t chunk, int64_t heads, bool writes) {
    enum { MOST_BYTES = 32 * 1024 };
    if (!h->tensor || chunk >= heads * h->tensor->shape.dim[0]) return;
    const int64_t size = (int64_t)ab_element_bytes(h->tensor), bytes = h->width * size;
    if (h->rows * bytes > MOST_BYTES) return;
    const char *at = ab_element(h->tensor, first_of(h, chunk / heads, chunk % heads));
    f->of[f->count++] = (ab_fetch){at, h->row_step * size, bytes, h->rows, writes};
}

/* ---- a head at once -------------------------------------------------------------------------- */

/* Whether vec_head.c computes the heads, with the bits of the path by blocks. */
static bool runs_at_once(const ab_attention *t, bool runs) {
    const int64_t queries = t->in[0].rows, keys = t->in[1].rows, widths[] = {t->in[0].width, t->in[2].width};
    if (!runs || t->half || t->exec->path == AB_PATH_REFERENCE) return false;
    if (t->mask.tensor || t->dropout.threshold || (t->causal && !is_triangle(t))) return false;
    if (t->causal && queries != keys) return false;
    for (int i = 0; i < 2; i++)
        if (widths[i] % AB_HEAD_STEP != 0 || widths[i] > AB_HEAD_MOST) return false;
    return ab_min64(queries, keys) >= AB_HEAD_LEAST && ab_max64(queries, keys) <= AB_HEAD_MOST;
}

static bool all_bf16(const ab_attention *t) {
    const ab_heads *heads[] = {&t->in[0],  &t->in[1],  &t->in[2],  &t->out,
                               &t->din[0], &t->din[1], &t->din[2], &t->dout};
    for (size_t i = 0; i < AB_COUNT_OF(heads); i++)
        if (heads[i]->tensor && heads[i]->tensor->format != &ab_format_bf16) return false;
    return true;
}

bool ab_attention_pairs(const ab_attention *t) {
    const ab_cpu_path path = t->exec->path;
    const ab_bf16_unit *unit = ab_bf16_unit_get(path == AB_PATH_NATIVE);
    if ((path != AB_PATH_AUTO && path != AB_PATH_NATIVE) || !unit || unit != ab_bf16_unit_avx512())
        return false;
    return ab_vec_head_get()->takes_bf16 && all_bf16(t) && runs_at_once(t, true);
}

/* The rows of a head: as bf16, as fp32 in the tensor or in a copy, or both. */
static ab_head_rows head_rows(const head *x, const ab_heads *h, bool bf16, float *data, int64_t step) {
    ab_head_rows rows = {.data = data, .step = step};
    if (!bf16 || !h->tensor) return rows;
    rows.bf16 = (uint16_t *)h->tensor->data + first_of(h, x->batch, x->head);
    rows.bf16_step = h->row_step;
    return rows;
}

static ab_head whole_head(const head *x, ab_fetches *fetches) {
    const ab_attention *t = x->t;
    const int64_t at = (x->batch * t->heads + x->head) * t->in[0].rows;
    const matrix *in[] = {&x->q, &x->k, &x->v};
    ab_head h = {.queries = t->in[0].rows,
                 .keys = t->in[1].rows,
                 .width = t->in[0].width,
                 .value_width = t->in[2].width,
                 .causal = t->causal,
                 .pairs = x->pairs,
                 .scale = t->scale,
                 .log_sum = t->log_sum ? t->log_sum + at : NULL,
                 .fetches = fetches,
                 .p = x->s.p,
                 .dp = x->s.dp};
    for (int i = 0; i < 3; i++)
        h.in[i] = head_rows(x, &t->in[i], x->pairs, (float *)in[i]->data, in[i]->step);
    return h;
}

static ab_head_rows result_rows(const head *x, int i, const ab_heads *h) {
    return head_rows(x, h, x->in_place, x->in_place ? NULL : x->result[i], x->result_step[i]);
}

static bool forward_at_once(const head *x, ab_fetches *fetches) {
    const ab_vec_head *vec = ab_vec_head_get();
    if (!runs_at_once(x->t, vec->forward != NULL)) return false;
    ab_head h = whole_head(x, fetches);
    h.out = result_rows(x, 0, &x->t->out);
    return vec->forward(&h);
}

static bool backward_at_once(const head *x, ab_fetches *fetches) {
    const ab_vec_head *vec = ab_vec_head_get();
    if (!runs_at_once(x->t, vec->backward != NULL)) return false;
    ab_head h = whole_head(x, fetches);
    h.dout = head_rows(x, &x->t->dout, x->pairs, (float *)x->dout.data, x->dout.step);
    for (int i = 0; i < RESULTS; i++) h.din[i] = result_rows(x, i, &x->t->din[i]);
    return vec->backward(&h);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Widens halves. */
static void read_operands(head *x) {
    const ab_attention *t = x->t;
    x->q = read_head(&t->in[0], x->batch, x->head, x->s.operand[0]);
    x->k = read_head(&t->in[1], x->batch, x->head, x->s.operand[1]);
    x->v = read_head(&t->in[2], x->batch, x->head, x->s.operand[2]);
    if (x->backward) x->dout = read_head(&t->dout, x->batch, x->head, x->s.operand[3]);
}

static head open_head(const ab_attention *t, int64_t chunk, int thread, bool backward) {
    head x = {.t = t,
              .batch = chunk / t->heads,
              .head = chunk % t->heads,
              .block = block_queries(t),
              .step = scores_step(t),
              .backward = backward,
              .s = scratch_of(t, thread),
              .pairs = t->pairs};
    x.in_place = x.pairs && !t->exec->observer;
    if (!x.in_place) read_operands(&x);
    return x;
}

static void forward_blocks(const head *x) {
    const ab_attention *t = x->t;
    for (int64_t first = 0; first < t->in[0].rows; first += x->block) {
        int64_t n = ab_min64(x->block, t->in[0].rows - first), keys = visible_keys(t, first, n);
        block_probabilities(x, first, n, keys, true);
        ab_gemm g = {.rows = n,
                     .columns = t->in[2].width,
                     .inner = keys,
                     .alpha = 1.0f,
                     .a = weights_of_values(x, first, n, keys),
                     .lda = x->step,
                     .b = x->v.data,
                     .ldb = x->v.step,
                     .c = x->result[0] + first * x->result_step[0],
                     .ldc = x->result_step[0],
                     .triangle = is_triangle(t) ? AB_TRIANGLE_A_BELOW : AB_TRIANGLE_NONE,
                     .diagonal = first};
        ab_gemm_run(&g, t->exec->path, t->half);
    }
}

static void forward_head(void *argument, int64_t chunk, int thread) {
    const ab_attention *t = argument;
    head x = open_head(t, chunk, thread, false);
    ab_fetches fetches = {.count = 0};
    place_result(&x, 0, &t->out);
    add_fetch(&fetches, &t->out, chunk, t->heads, true);
    for (int i = 0; i < 3; i++) add_fetch(&fetches, &t->in[i], chunk + 1, t->heads, false);
    const bool done = forward_at_once(&x, &fetches);
    ab_fetch_some(&fetches, INT64_MAX);
    if (done && x.in_place) return;
    if (!done && x.in_place) read_operands(&x);
    if (!done) forward_blocks(&x);
    store_result(&x, 0, &t->out);
}

static void for_heads(const ab_attention *t, ab_work work) {
    ab_attention copy = *t;
    int64_t heads = t->batch * t->heads, scores = t->in[0].rows * t->in[1].rows;
    bool fits = ab_threads_fit(t->exec, 0, ab_attention_thread_bytes(t));
    ab_for_chunks(fits ? heads * scores : 0, heads, work, &copy);
}

void ab_attention_forward(const ab_attention *t) { for_heads(t, forward_head); }

/* ---- backward -------------------------------------------------------------------------------- */

/* c (+)= alpha a^T b over the n queries of a block: accumulates dk and dv. */
static void gather(const head *x, int i, const float *a, int64_t keys, int64_t n, const matrix *b,
                   int64_t first, float alpha) {
    ab_gemm g = {.transpose_a = true,
                 .rows = keys,
                 .columns = x->t->in[i].width,
                 .inner = n,
                 .alpha = alpha,
                 .beta = first > 0 ? 1.0f : 0.0f,
                 .a = a,
                 .lda = x->step,
                 .b = b->data + first * b->step,
                 .ldb = b->step,
                 .c = x->result[i],
                 .ldc = x->result_step[i],
                 .triangle = is_triangle(x->t) ? AB_TRIANGLE_A_ABOVE : AB_TRIANGLE_NONE,
                 .diagonal = first};
    if (x->result[i]) ab_gemm_run(&g, x->t->exec->path, x->t->half);
}

/* dp = dout v^T, then overwritten with dS. */
static void score_gradients(const head *x, int64_t first, int64_t n, int64_t keys) {
    const ab_attention *t = x->t;
    float *dp = x->s.dp;
    const ab_score_rows rows = rows_of(x, dp, first, n, keys);
    ab_gemm g = {.transpose_b = true,
                 .rows = n,
                 .columns = keys,
                 .inner = t->in[2].width,
                 .alpha = 1.0f,
                 .a = x->dout.data + first * x->dout.step,
                 .lda = x->dout.step,
                 .b = x->v.data,
                 .ldb = x->v.step,
                 .c = dp,
                 .ldc = x->step,
                 .triangle = is_triangle(t) ? AB_TRIANGLE_C : AB_TRIANGLE_NONE,
                 .diagonal = first};
    ab_gemm_run(&g, t->exec->path, t->half);
    if (t->dropout.threshold) drop(x, dp, dp, first, n, keys);
    ab_vec_rows_get()->gradient(&rows, x->s.p);
}

static void query_gradients(const head *x, int64_t first, int64_t n, int64_t keys) {
    const ab_attention *t = x->t;
    ab_gemm g = {.rows = n,
                 .columns = t->in[0].width,
                 .inner = keys,
                 .alpha = t->scale,
                 .a = x->s.dp,
                 .lda = x->step,
                 .b = x->k.data,
                 .ldb = x->k.step,
                 .c = x->result[0] + first * x->result_step[0],
                 .ldc = x->result_step[0],
                 .triangle = is_triangle(t) ? AB_TRIANGLE_A_BELOW : AB_TRIANGLE_NONE,
                 .diagonal = first};
    ab_gemm_run(&g, t->exec->path, t->half);
}

/* The gradients of keys that no query of the first block sees. */
static void clear_result(const head *x, int i) {
    const ab_heads *h = &x->t->din[i];
    int64_t row = visible_keys(x->t, 0, ab_min64(x->block, x->t->in[0].rows));
    for (; x->result[i] && row < h->rows; row++)
        memset(x->result[i] + row * x->result_step[i], 0, (size_t)h->width * sizeof(float));
}

static void backward_blocks(const head *x) {
    const ab_attention *t = x->t;
    clear_result(x, 1);
    clear_result(x, 2);
    for (int64_t first = 0; first < t->in[0].rows; first += x->block) {
        int64_t n = ab_min64(x->block, t->in[0].rows - first), keys = visible_keys(t, first, n);
        block_probabilities(x, first, n, keys, false);
        gather(x, 2, weights_of_values(x, first, n, keys), keys, n, &x->dout, first, 1.0f);
        score_gradients(x, first, n, keys);
        if (x->result[0]) query_gradients(x, first, n, keys);
        gather(x, 1, x->s.dp, keys, n, &x->q, first, t->scale);
    }
}

static void backward_head(void *argument, int64_t chunk, int thread) {
    const ab_attention *t = argument;
    head x = open_head(t, chunk, thread, true);
    ab_fetches fetches = {.count = 0};
    for (int i = 0; i < RESULTS; i++) place_result(&x, i, &t->din[i]);
    for (int i = 0; i < 3; i++) add_fetch(&fetches, &t->din[i], chunk, t->heads, true);
    for (int i = 0; i < 3; i++) add_fetch(&fetches, &t->in[i], chunk + 1, t->heads, false);
    add_fetch(&fetches, &t->dout, chunk + 1, t->heads, false);
    const bool done = backward_at_once(&x, &fetches);
    ab_fetch_some(&fetches, INT64_MAX);
    if (done && x.in_place) return;
    if (!done && x.in_place) read_operands(&x);
    if (!done) backward_blocks(&x);
    for (int i = 0; i < RESULTS; i++) store_result(&x, i, &t->din[i]);
}

void ab_attention_backward(const ab_attention *t) { for_heads(t, backward_head); }
