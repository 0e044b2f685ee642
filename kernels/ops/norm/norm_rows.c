/* Row normalisation; see norm_rows.h. Statistics: mean first, then squared deviations from it (two passes
 * over a cached row), which avoids cancellation for a large mean. */
#include "kernels/ops/norm/norm_rows.h"

#include "kernels/format/convert.h"
#include "kernels/ops/norm/vec_norm_rows.h"
#include "kernels/vec/isa.h"

#include <assert.h>
#include <math.h>
#include <string.h>

AB_BY_ISA(ab_vec_norm_rows, ab_vec_norm_rows)

enum { FP32_ROWS = 32 }; /* rows per fp32 sum of parameter gradients */

enum { PARAMS = 3 }; /* rows of parameters in the workspace */

/* Workspace: weight, bias and the weight of the input's gradient as fp32; per chunk fp32 and double sums of
 * both gradients, and a row of normalised values. */
typedef struct shared {
    const ab_norm_rows *norm;
    const ab_format *stored;     /* of the output */
    float *weight, *bias, *pull; /* bias NULL if absent */
    char *sums;
    size_t sums_bytes, fixed_bytes;
} shared;

static size_t sums_bytes(int64_t n) {
    return 3 * ab_floats_bytes(n) + 2 * ab_aligned((size_t)n * sizeof(double));
}

static size_t fixed_bytes(const ab_row_split *s) {
    return PARAMS * ab_floats_bytes(s->n) + (size_t)s->chunks * sums_bytes(s->n);
}

static size_t workspace_of(const ab_shape *shape) {
    ab_row_split s = ab_row_split_of(shape);
    return fixed_bytes(&s) + ab_row_pass_bytes(shape);
}

ab_status ab_norm_rows_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                               size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = workspace_of(&io->in[0]->shape);
    *state_bytes = 0;
    return AB_OK;
}

static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};

static void copy_param(float *to, const ab_tensor *param, int64_t n, float otherwise) {
    const float *view = param ? ab_view_f32(param, to) : NULL;
    for (int64_t i = 0; i < n; i++) to[i] = view ? view[i] : otherwise;
}

/* apex: a weight of a magnitude below eps, rounded to the weight's format, counts as that. */
static void clamp_weights(const ab_norm_rows *norm, float *pull, const float *weight, int64_t n) {
    const bool clamps = norm->fused && norm->weight;
    const float least = clamps ? (float)ab_format_round(norm->weight->format, &nearest, norm->eps) : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const bool small = clamps && fabsf(weight[i]) < least;
        pull[i] = !small ? weight[i] : weight[i] >= 0.0f ? least : -least;
    }
}

static shared start(const ab_exec *exec, const ab_op_io *io, const ab_row_split *s,
                    const ab_norm_rows *norm) {
    const size_t row = ab_floats_bytes(s->n) / sizeof(float);
    shared w = {.norm = norm, .sums_bytes = sums_bytes(s->n), .fixed_bytes = fixed_bytes(s)};
    w.stored = io->out ? io->out->format : NULL;
    w.weight = exec->workspace;
    assert(w.weight);
    w.bias = norm->bias ? w.weight + row : NULL;
    w.pull = w.weight + 2 * row;
    w.sums = (char *)(w.weight + PARAMS * row);
    copy_param(w.weight, norm->weight, s->n, 1.0f);
    if (w.bias) copy_param(w.bias, norm->bias, s->n, 0.0f);
    clamp_weights(norm, w.pull, w.weight, s->n);
    return w;
}

/* ---- formats ---------------------------------------------------------------------------------- */

/* Whether the loops over several rows compute a pass from `in` to `out`, or back. An observer wants rows
 * before they are rounded. */
static bool several_rows(const ab_exec *exec, const ab_norm_rows *norm, const ab_tensor *in,
                         const ab_tensor *out) {
    const ab_stored from = ab_stored_as(in->format), to = ab_stored_as(out->format);
    const int64_t n = in->shape.dim[in->shape.ndim - 1];
    const bool all = from != AB_STORED_COUNT && to != AB_STORED_COUNT && !norm->fused && !norm->from_output;
    return all && n % AB_NORM_STEP == 0 && !exec->observer && ab_vec_norm_rows_get()->forward[from][to];
}

static bool is_paired(const ab_tensor *in, const ab_tensor *out) {
    return in->format == &ab_format_bf16 && out->format == &ab_format_bf16;
}

static void pair_parameters(const shared *w, int64_t n) {
    const ab_vec_norm_rows *vec = ab_vec_norm_rows_get();
    vec->pair(w->weight, n);
    if (w->bias) vec->pair(w->bias, n);
}

/* ---- forward --------------------------------------------------------------------------------- */

static ab_row_norm measure(const ab_norm_rows *norm, const float *x, int64_t n) {
    const ab_vec_math *vec = ab_vec_math_get();
    ab_row_norm of = {0.0f, 0.0f};
    double m2;
    if (norm->centred) {
        float squares;
        vec->row_moments(x, n, &of.mean, &squares);
        m2 = (double)squares;
    } else {
        m2 = vec->row_dot(x, x, n);
    }
    of.rstd = (float)(1.0 / sqrt(m2 / (double)n + norm->eps));
    return of;
}

/* The arithmetic of apex's kernels: in the output's format after the normalisation. */
static void normalise_staged(const shared *w, float *out, const float *x, const ab_row_norm *of, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] - of->mean) * of->rstd;
    if (!w->norm->weight) return;
    ab_round_array(out, w->stored, &nearest, n);
    for (int64_t i = 0; i < n; i++) out[i] *= w->weight[i];
    if (!w->bias) return;
    ab_round_array(out, w->stored, &nearest, n);
    for (int64_t i = 0; i < n; i++) out[i] += w->bias[i];
}

static void forward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *out, const float *x,
                        const float *unused) {
    const shared *w = p->self;
    const ab_row_norm of = measure(w->norm, x, p->split.n);
    (void)chunk;
    (void)unused;
    if (w->norm->mean) ((float *)w->norm->mean->data)[row] = of.mean;
    if (w->norm->rstd) ((float *)w->norm->rstd->data)[row] = of.rstd;
    if (w->norm->fused)
        normalise_staged(w, out, x, &of, p->split.n);
    else
        ab_vec_math_get()->row_normalise(out, x, &of, w->weight, w->bias, p->split.n);
}

static int64_t rows_of(const ab_row_split *s, int64_t chunk) {
    return ab_min64(s->chunk_rows, s->rows - chunk * s->chunk_rows);
}

/* Rows of a chunk at once. */
static void forward_chunk(void *argument, int64_t chunk, int thread) {
    const ab_row_pass *p = argument;
    const shared *w = p->self;
    const ab_norm_rows *norm = w->norm;
    const int64_t first = chunk * p->split.chunk_rows, at = first * p->split.n;
    const ab_norm_forward f = {.x = ab_element(p->a, at),
                               .y = ab_element(p->dst, at),
                               .weight = w->weight,
                               .bias = w->bias,
                               .mean = norm->mean ? (float *)norm->mean->data + first : NULL,
                               .rstd = norm->rstd ? (float *)norm->rstd->data + first : NULL,
                               .rows = rows_of(&p->split, chunk),
                               .n = p->split.n,
                               .eps = norm->eps,
                               .centred = norm->centred};
    (void)thread;
    ab_vec_norm_rows_get()->forward[ab_stored_as(p->a->format)][ab_stored_as(p->dst->format)](&f);
}

void ab_norm_rows_forward(const ab_exec *exec, const ab_op_io *io, const ab_norm_rows *norm) {
    ab_row_split s = ab_row_split_of(&io->in[0]->shape);
    shared w = start(exec, io, &s, norm);
    ab_row_pass p = {exec, s, io->in[0], NULL, io->out, w.fixed_bytes, &w, forward_row};
    if (!several_rows(exec, norm, io->in[0], io->out)) {
        ab_row_pass_run(&p);
        return;
    }
    if (is_paired(io->in[0], io->out)) pair_parameters(&w, s.n);
    ab_for_chunks(s.rows * s.n, s.chunks, forward_chunk, &p);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Parameter gradient sums of one chunk: [0] weight, [1] bias. */
typedef struct chunk_sums {
    float *few[2], *xhat; /* xhat: of one row */
    double *all[2];
} chunk_sums;

static chunk_sums sums_of(const shared *w, int64_t n, int64_t chunk) {
    char *memory = w->sums + (size_t)chunk * w->sums_bytes;
    size_t few = ab_floats_bytes(n), all = ab_aligned((size_t)n * sizeof(double));
    chunk_sums s;
    for (size_t i = 0; i < 2; i++) {
        s.few[i] = (float *)(void *)(memory + i * few);
        s.all[i] = (double *)(void *)(memory + 2 * few + i * all);
    }
    s.xhat = (float *)(void *)(memory + 2 * few + 2 * all);
    return s;
}

static void move_on(const chunk_sums *s, int64_t n) {
    for (int i = 0; i < 2; i++) ab_vec_norm_rows_get()->move_on(s->all[i], s->few[i], n);
}

/* From the stored output: normalised values to s->xhat, sums as row_gradient_sums. */
static void sums_from_output(const shared *w, const chunk_sums *s, const float *y, const float *dy,
                             double sum[2], int64_t n) {
    const ab_vec_math *vec = ab_vec_math_get();
    for (int64_t i = 0; i < n; i++) s->xhat[i] = y[i] - (w->bias ? w->bias[i] : 0.0f);
    sum[0] = vec->row_dot(dy, w->weight, n);
    sum[1] = vec->row_dot(dy, s->xhat, n); /* xhat times the weight */
    for (int64_t i = 0; i < n; i++) s->xhat[i] /= w->pull[i];
    for (int64_t i = 0; i < n; i++) s->few[0][i] += dy[i] * s->xhat[i];
    for (int64_t i = 0; i < n; i++) s->few[1][i] += dy[i];
}

static void gradient_from_output(const shared *w, const chunk_sums *s, float *dx, const float *dy, float rstd,
                                 const float mean[2], int64_t n) {
    for (int64_t i = 0; i < n; i++) dx[i] = rstd * ((dy[i] * w->pull[i] - mean[0]) - s->xhat[i] * mean[1]);
}

static void backward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *dx, const float *x,
                         const float *dy) {
    const shared *w = p->self;
    const ab_norm_rows *norm = w->norm;
    const ab_vec_math *vec = ab_vec_math_get();
    const ab_row_split *split = &p->split;
    int64_t n = split->n, first = chunk * split->chunk_rows,
            last = ab_min64(first + split->chunk_rows, split->rows) - 1;
    chunk_sums s = sums_of(w, n, chunk);
    ab_row_norm of = {norm->mean ? ((const float *)norm->mean->data)[row] : 0.0f,
                      ((const float *)norm->rstd->data)[row]};
    double sum[2];
    if (row == first) memset(s.few[0], 0, w->sums_bytes); /* the arrays are contiguous */
    if (norm->from_output)
        sums_from_output(w, &s, x, dy, sum, n);
    else
        vec->row_gradient_sums(dy, x, &of, w->weight, s.few[0], s.few[1], sum, n);
    if ((row - first) % FP32_ROWS == FP32_ROWS - 1 || row == last) move_on(&s, n);
    const float mean[2] = {norm->centred ? (float)(sum[0] / (double)n) : 0.0f, (float)(sum[1] / (double)n)};
    if (dx && norm->from_output)
        gradient_from_output(w, &s, dx, dy, of.rstd, mean, n);
    else if (dx)
        vec->row_gradient(dx, dy, x, &of, w->pull, mean[0], mean[1], n);
}

static void backward_chunk(void *argument, int64_t chunk, int thread) {
    const ab_row_pass *p = argument;
    const shared *w = p->self;
    const ab_norm_rows *norm = w->norm;
    const int64_t n = p->split.n, first = chunk * p->split.chunk_rows, rows = rows_of(&p->split, chunk);
    const chunk_sums s = sums_of(w, n, chunk);
    (void)thread;
    memset(s.few[0], 0, w->sums_bytes);
    for (int64_t row = first; row < first + rows; row += FP32_ROWS) {
        const ab_norm_backward b = {.x = ab_element(p->a, row * n),
                                    .dy = ab_element(p->b, row * n),
                                    .dx = p->dst ? ab_element(p->dst, row * n) : NULL,
                                    .weight = w->weight,
                                    .mean = norm->mean ? (const float *)norm->mean->data + row : NULL,
                                    .rstd = (const float *)norm->rstd->data + row,
                                    .dweight = s.few[0],
                                    .dbias = s.few[1],
                                    .rows = ab_min64(FP32_ROWS, first + rows - row),
                                    .n = n,
                                    .centred = norm->centred};
        ab_vec_norm_rows_get()->backward[ab_stored_as(p->a->format)][ab_stored_as(p->b->format)](&b);
        move_on(&s, n);
    }
}

static bool several_rows_back(const ab_exec *exec, const ab_norm_rows *norm, const ab_op_io *io) {
    const ab_tensor *dx = io->din[0];
    return several_rows(exec, norm, io->in[0], io->dout) && (!dx || dx->format == io->in[0]->format);
}

void ab_norm_rows_backward(const ab_exec *exec, const ab_op_io *io, const ab_norm_rows *norm) {
    ab_row_split split = ab_row_split_of(&io->dout->shape);
    shared w = start(exec, io, &split, norm);
    const ab_tensor *kept = norm->from_output ? io->out : io->in[0];
    ab_row_pass p = {exec, split, kept, io->dout, io->din[0], w.fixed_bytes, &w, backward_row};
    ab_tensor *gradient[] = {norm->dweight, norm->dbias};
    const bool several = several_rows_back(exec, norm, io), paired = several && is_paired(kept, io->dout);
    if (paired) pair_parameters(&w, split.n);
    if (several)
        ab_for_chunks(split.rows * split.n, split.chunks, backward_chunk, &p);
    else
        ab_row_pass_run(&p);
    chunk_sums total = sums_of(&w, split.n, 0);
    for (int64_t chunk = 1; chunk < split.chunks; chunk++) {
        chunk_sums part = sums_of(&w, split.n, chunk);
        for (int i = 0; i < 2; i++)
            for (int64_t c = 0; c < split.n; c++) total.all[i][c] += part.all[i][c];
    }
    for (int i = 0; i < 2; i++) {
        for (int64_t c = 0; c < split.n; c++) total.few[i][c] = (float)total.all[i][c];
        if (paired) ab_vec_norm_rows_get()->part(total.few[i], split.n);
        if (gradient[i]) ab_emit(exec, gradient[i], 0, total.few[i], split.n);
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

ab_status ab_norm_rows_infer(const char *what, int64_t size, const ab_shape *in, ab_shape *out) {
    char text[AB_SHAPE_TEXT];
    int64_t last = in->ndim ? in->dim[in->ndim - 1] : 0;
    if (in->ndim < 2 || (size && size != last))
        return ab_fail(AB_CONFIG, "%s: expected an input [batch, ..., %lld], found %s", what,
                       (long long)(size ? size : last), ab_shape_text(in, text));
    *out = *in;
    return AB_OK;
}

ab_shape ab_norm_rows_statistic(const ab_shape *in) {
    ab_shape shape = *in;
    shape.ndim--;
    return shape;
}
