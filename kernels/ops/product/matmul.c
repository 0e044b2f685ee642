/* matmul: the matrix product of the last two dimensions, [..., m, k] by [..., k, n], as torch.matmul; leading
 * dimensions are broadcast. Each product is computed in fp32 by one thread, one block of rows at a time; the
 * gradient of a matrix shared by several products is summed in order. 1-D operands are not supported. */
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/gemm.h"
#include "kernels/ops/views.h"

#include <assert.h>
#include <string.h>

/* A product of few matrices is split into blocks of rows, by the shapes alone. */
enum { BLOCKS = 8, MANY = 16, FEW_ROWS = 32 };

typedef struct geometry {
    ab_shape batch; /* of the result: all dimensions but the last two */
    int64_t items, m, k, n;
} geometry;

static ab_shape batch_of(const ab_shape *shape) {
    ab_shape batch = *shape;
    batch.ndim -= 2;
    return batch;
}

static bool measure(const ab_shape *a, const ab_shape *b, geometry *g) {
    if (a->ndim < 2 || b->ndim < 2) return false;
    ab_shape of_a = batch_of(a), of_b = batch_of(b);
    g->m = a->dim[a->ndim - 2];
    g->k = a->dim[a->ndim - 1];
    g->n = b->dim[b->ndim - 1];
    if (!ab_broadcast_shape(&of_a, &of_b, &g->batch)) return false;
    g->items = ab_shape_check(&g->batch) ? ab_shape_count(&g->batch) : 0; /* infer refuses the result */
    return b->dim[b->ndim - 2] == g->k;
}

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    geometry g;
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT];
    (void)attrs;
    (void)inputs;
    if (!measure(&in[0], &in[1], &g))
        return ab_fail(AB_CONFIG, "matmul expects [..., m, k] and [..., k, n], found %s and %s",
                       ab_shape_text(&in[0], a), ab_shape_text(&in[1], b));
    *out = g.batch;
    out->dim[out->ndim++] = g.m;
    out->dim[out->ndim++] = g.n;
    return AB_OK;
}

/* The operand's matrix for item `item` of the result. */
static int64_t matrix_of(const geometry *g, const ab_shape *operand, int64_t item) {
    const int ndim = operand->ndim - 2;
    int64_t index = 0, step = 1;
    for (int i = 1; i <= ndim; i++) {
        int64_t digit = item % g->batch.dim[g->batch.ndim - i], dim = operand->dim[ndim - i];
        item /= g->batch.dim[g->batch.ndim - i];
        if (dim != 1) index += digit * step;
        step *= dim;
    }
    return index;
}

/* ---- a product ------------------------------------------------------------------------------- */

/* One operand of a product: a matrix of a tensor, and its rows. */
typedef struct factor {
    const ab_tensor *tensor;
    int64_t rows, columns; /* per matrix */
    bool transposed;
} factor;

/* dst = left right, summed over the items that share a matrix of dst. */
typedef struct product_job {
    const ab_exec *exec;
    const geometry *g;
    factor left, right;
    ab_tensor *dst;
    int64_t rows, columns, inner, blocks;
    const ab_format *half; /* accumulation format, or NULL */
    size_t left_bytes, right_bytes, thread_bytes;
} product_job;

static int64_t matrices(const product_job *job) {
    return ab_tensor_count(job->dst) / (job->rows * job->columns);
}

static size_t matrix_bytes(const ab_tensor *tensor, int64_t elements) {
    return ab_is_f32(tensor) ? 0 : ab_floats_bytes(elements);
}

static void size_up(product_job *job) {
    job->blocks = matrices(job) >= MANY ? 1 : ab_max64(1, ab_min64(BLOCKS, job->rows / FEW_ROWS));
    job->left_bytes = matrix_bytes(job->left.tensor, job->left.rows * job->left.columns);
    job->right_bytes = matrix_bytes(job->right.tensor, job->right.rows * job->right.columns);
    job->thread_bytes = job->left_bytes + job->right_bytes + matrix_bytes(job->dst, job->rows * job->columns);
}

static const float *read_matrix(const factor *f, const geometry *g, int64_t item, char *buffer) {
    const int64_t count = f->rows * f->columns;
    int64_t index = matrix_of(g, &f->tensor->shape, item);
    return ab_read(f->tensor, index * count, count, (float *)(void *)buffer);
}

/* Rows [first, first + rows) of one product, added to c or stored in it. */
static void multiply(const product_job *job, int64_t item, int64_t first, int64_t rows, float *c, bool add,
                     char *buffer) {
    const float *a = read_matrix(&job->left, job->g, item, buffer);
    ab_gemm gemm = {.transpose_a = job->left.transposed,
                    .transpose_b = job->right.transposed,
                    .rows = rows,
                    .columns = job->columns,
                    .inner = job->inner,
                    .alpha = 1,
                    .beta = add ? 1 : 0,
                    .a = a + first * (job->left.transposed ? 1 : job->left.columns),
                    .lda = job->left.columns,
                    .b = read_matrix(&job->right, job->g, item, buffer + job->left_bytes),
                    .ldb = job->right.columns,
                    .c = c,
                    .ldc = job->columns};
    ab_gemm_run(&gemm, job->exec->path, job->half);
}

static void product_block(void *argument, int64_t chunk, int thread) {
    const product_job *job = argument;
    char *buffer = (char *)job->exec->workspace + (size_t)thread * job->thread_bytes;
    const int64_t matrix = chunk / job->blocks, block = chunk % job->blocks, all = matrices(job);
    const int64_t first = job->rows * block / job->blocks, end = job->rows * (block + 1) / job->blocks;
    const int64_t at = (matrix * job->rows + first) * job->columns;
    float *c = ab_target(job->dst, at, (float *)(void *)(buffer + job->left_bytes + job->right_bytes));
    bool add = false;
    for (int64_t item = all == job->g->items ? matrix : 0; item < job->g->items; item++) {
        if (matrix_of(job->g, &job->dst->shape, item) != matrix) continue;
        multiply(job, item, first, end - first, c, add, buffer);
        add = true;
        if (all == job->g->items) break;
    }
    ab_emit(job->exec, job->dst, at, c, (end - first) * job->columns);
}

static void run(product_job *job) {
    int64_t chunks = matrices(job) * job->blocks;
    if (ab_threads_fit(job->exec, 0, job->thread_bytes))
        ab_parallel_for(chunks, product_block, job);
    else
        ab_for_chunks(0, chunks, product_block, job);
}

/* Products of an op: the result and the gradients of both operands. dst is NULL if not wanted. */
enum { RESULT, BY_A, BY_B, PRODUCTS };

static void open_products(const ab_exec *exec, const ab_op_io *io, geometry *g, product_job job[PRODUCTS]) {
    measure(&io->in[0]->shape, &io->in[1]->shape, g);
    const factor a = {io->in[0], g->m, g->k, false}, b = {io->in[1], g->k, g->n, false};
    const factor dout = {io->dout ? io->dout : io->out, g->m, g->n, false};
    factor a_transposed = a, b_transposed = b;
    a_transposed.transposed = b_transposed.transposed = true;
    job[RESULT] =
        (product_job){.left = a, .right = b, .dst = io->out, .rows = g->m, .columns = g->n, .inner = g->k};
    job[BY_A] = (product_job){
        .left = dout, .right = b_transposed, .dst = io->din[0], .rows = g->m, .columns = g->k, .inner = g->n};
    job[BY_B] = (product_job){
        .left = a_transposed, .right = dout, .dst = io->din[1], .rows = g->k, .columns = g->n, .inner = g->m};
    for (int i = 0; i < PRODUCTS; i++) {
        if (!job[i].dst) continue;
        job[i].exec = exec;
        job[i].g = g;
        job[i].half = exec->accumulate_half && !ab_is_f32(job[i].dst) ? job[i].dst->format : NULL;
        size_up(&job[i]);
    }
}

/* ---- the op ---------------------------------------------------------------------------------- */

/* For describe: matrix product in use, and whether operands are widened. */
typedef union description {
    const char *text;
    void *state;
} description;

static description describes(const ab_exec *exec, const ab_op_io *io, const product_job *job) {
    const bool wide = ab_is_f32(io->in[0]) && ab_is_f32(io->in[1]) && ab_is_f32(io->out);
    assert(job->blocks > 0);
    const ab_gemm block = {
        .rows = ab_div_up(job->rows, job->blocks), .columns = job->columns, .inner = job->inner};
    return (description){.text = ab_gemm_text(&block, exec->path, job->half, !wide)};
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    geometry g;
    product_job job[PRODUCTS];
    *workspace_bytes = *state_bytes = 0;
    open_products(exec, io, &g, job);
    io->state = describes(exec, io, &job[RESULT]).state;
    for (int i = 0; i < PRODUCTS; i++) {
        size_t bytes = job[i].dst ? (size_t)ab_parallel_threads() * job[i].thread_bytes : 0;
        if (bytes > *workspace_bytes) *workspace_bytes = bytes;
    }
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    geometry g;
    product_job job[PRODUCTS];
    open_products(exec, io, &g, job);
    run(&job[RESULT]);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    geometry g;
    product_job job[PRODUCTS];
    open_products(exec, io, &g, job);
    for (int i = BY_A; i < PRODUCTS; i++)
        if (job[i].dst) run(&job[i]);
    return AB_OK;
}

/* The gradient of each operand reads the other operand. */
static unsigned needs(const void *attrs, int inputs, unsigned wanted) {
    (void)attrs;
    (void)inputs;
    return (wanted & 1u) << 1 | (wanted >> 1 & 1u);
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    return 2.0 * (double)ab_shape_count(out) * (double)in[0].dim[in[0].ndim - 1];
}

static const char *describe(const ab_op_io *io, const char *pass) {
    description d = {.state = io->state};
    return strcmp(pass, "backward_weights") == 0 ? NULL : d.text;
}

const ab_op ab_op_matmul = {.name = "matmul",
                            .inputs = 2,
                            .infer = infer,
                            .backward_needs = 1u << 0 | 1u << 1,
                            .needs = needs,
                            .prepare = prepare,
                            .forward = forward,
                            .backward = backward,
                            .flops = flops,
                            .describe = describe};
