/* embedding: selects rows of a table by id, as torch.nn.Embedding. The gradient is dense; gradients of rows
 * that occur several times are summed in fp32 in the order of their positions and rounded once. With
 * padding_idx that row gets no gradient (its initial value is not set to 0). */
#include "kernels/ops/blocks.h"

#include <string.h>

typedef struct embedding_attrs {
    int64_t num_embeddings, embedding_dim, padding_idx;
} embedding_attrs;

enum { MAX_ROWS = 1 << 24, CHUNK_ELEMENTS = 16 * 1024 };

static const ab_attr attrs_table[] = {
    {"num_embeddings", AB_ATTR_INT, offsetof(embedding_attrs, num_embeddings), true, 0, 1, MAX_ROWS,
     "rows of the table: ids are below this"},
    {"embedding_dim", AB_ATTR_INT, offsetof(embedding_attrs, embedding_dim), true, 0, 1, MAX_ROWS,
     "size of a row"},
    {"padding_idx", AB_ATTR_INT, offsetof(embedding_attrs, padding_idx), false, -1, -1, MAX_ROWS - 1,
     "id whose row gets no gradient; -1: none"},
    {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const embedding_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (in->ndim < 1 || in->ndim >= AB_MAX_DIMS || ab_shape_count(in) > INT32_MAX)
        return ab_fail(AB_CONFIG, "embedding expects ids [batch] or [batch, tokens], found %s",
                       ab_shape_text(in, text));
    *out = *in;
    out->dim[out->ndim++] = a->embedding_dim;
    return AB_OK;
}

static int params(const void *attrs, const ab_shape *in, ab_param_spec *spec) {
    const embedding_attrs *a = attrs;
    (void)in;
    spec[0] = (ab_param_spec){"weight",
                              AB_PARAM_WEIGHT,
                              {.ndim = 2, .dim = {a->num_embeddings, a->embedding_dim}},
                              AB_INIT_NORMAL,
                              1.0};
    return 1;
}

/* Workspace: the list of positions sorted by id and the start of each id in it; per thread one row of sums
 * and one row read. */
typedef struct lookup {
    const ab_exec *exec;
    const int32_t *ids;
    int64_t positions, rows, dim, padding, chunk_rows;
    int32_t *begin, *position;
    char *threads;
    size_t fixed_bytes, thread_bytes;
    ab_tensor *to;
    const ab_tensor *from;
} lookup;

static lookup measure(const ab_exec *exec, const ab_op_io *io) {
    const embedding_attrs *a = io->attrs;
    lookup l = {.exec = exec,
                .ids = io->in[0]->data,
                .positions = ab_tensor_count(io->in[0]),
                .rows = a->num_embeddings,
                .dim = a->embedding_dim,
                .padding = a->padding_idx};
    size_t begin = ab_aligned((size_t)(l.rows + 1) * sizeof(int32_t));
    l.chunk_rows = ab_div_up(CHUNK_ELEMENTS, l.dim);
    l.fixed_bytes = begin + ab_aligned((size_t)l.positions * sizeof(int32_t));
    l.thread_bytes = 2 * ab_floats_bytes(l.dim);
    return l;
}

static lookup start(const ab_exec *exec, const ab_op_io *io) {
    lookup l = measure(exec, io);
    l.begin = exec->workspace;
    l.position = l.begin + ab_aligned((size_t)(l.rows + 1) * sizeof(int32_t)) / sizeof(int32_t);
    l.threads = (char *)exec->workspace + l.fixed_bytes;
    return l;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    lookup l = measure(exec, io);
    *workspace_bytes = l.fixed_bytes + (size_t)ab_parallel_threads() * l.thread_bytes;
    *state_bytes = 0;
    return AB_OK;
}

static float *thread_row(const lookup *l, int thread, size_t i) {
    return (float *)(void *)(l->threads + (size_t)thread * l->thread_bytes + i * ab_floats_bytes(l->dim));
}

static int64_t parallel_elements(const lookup *l, int64_t rows) {
    return ab_threads_fit(l->exec, l->fixed_bytes, l->thread_bytes) ? rows * l->dim : 0;
}

/* ---- forward --------------------------------------------------------------------------------- */

static ab_status check(const lookup *l) {
    for (int64_t i = 0; i < l->positions; i++)
        if (l->ids[i] < 0 || l->ids[i] >= l->rows)
            return ab_fail(AB_INPUT, "embedding: position %lld holds id %d, expected 0 to %lld", (long long)i,
                           (int)l->ids[i], (long long)l->rows - 1);
    return AB_OK;
}

static void look_up(void *argument, int64_t chunk, int thread) {
    const lookup *l = argument;
    for (int64_t i = chunk * l->chunk_rows; i < ab_min64((chunk + 1) * l->chunk_rows, l->positions); i++)
        ab_emit(l->exec, l->to, i * l->dim,
                ab_read(l->from, l->ids[i] * l->dim, l->dim, thread_row(l, thread, 0)), l->dim);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    lookup l = start(exec, io);
    AB_TRY(check(&l));
    l.from = io->param[0];
    l.to = io->out;
    ab_for_chunks(parallel_elements(&l, l.positions), ab_div_up(l.positions, l.chunk_rows), look_up, &l);
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Counting sort: position[begin[id] .. begin[id + 1]) are the positions of id, in order. */
static void sort_positions(const lookup *l) {
    memset(l->begin, 0, (size_t)(l->rows + 1) * sizeof *l->begin);
    for (int64_t i = 0; i < l->positions; i++) l->begin[l->ids[i] + 1]++;
    for (int64_t row = 0; row < l->rows; row++) l->begin[row + 1] += l->begin[row];
    for (int64_t i = 0; i < l->positions; i++) l->position[l->begin[l->ids[i]]++] = (int32_t)i;
    memmove(l->begin + 1, l->begin,
            (size_t)l->rows * sizeof *l->begin); /* the sort advanced each begin to its end */
    l->begin[0] = 0;
}

static void sum_rows(void *argument, int64_t chunk, int thread) {
    const lookup *l = argument;
    for (int64_t row = chunk * l->chunk_rows; row < ab_min64((chunk + 1) * l->chunk_rows, l->rows); row++) {
        float *sum = ab_target(l->to, row * l->dim, thread_row(l, thread, 0));
        memset(sum, 0, (size_t)l->dim * sizeof *sum);
        for (int32_t i = l->begin[row]; row != l->padding && i < l->begin[row + 1]; i++) {
            const float *from = ab_read(l->from, l->position[i] * l->dim, l->dim, thread_row(l, thread, 1));
            for (int64_t c = 0; c < l->dim; c++) sum[c] += from[c];
        }
        ab_emit(l->exec, l->to, row * l->dim, sum, l->dim);
    }
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    lookup l = start(exec, io);
    if (!io->dparam[0]) return AB_OK;
    sort_positions(&l);
    l.from = io->dout;
    l.to = io->dparam[0];
    ab_for_chunks(parallel_elements(&l, l.rows), ab_div_up(l.rows, l.chunk_rows), sum_rows, &l);
    return AB_OK;
}

const ab_op ab_op_embedding = {.name = "embedding",
                               .inputs = 1,
                               .integer_inputs = 1u << 0,
                               .attrs_bytes = sizeof(embedding_attrs),
                               .attrs = attrs_table,
                               .infer = infer,
                               .params = params,
                               .backward_needs = 1u << 0,
                               .prepare = prepare,
                               .forward = forward,
                               .backward = backward,
                               .describe = ab_describe_own};
