// matmul on CUDA: batches that can be expressed as one strided product use cuBLASLt; other broadcasts, and
// results observed by a probe, use own tiles. The gradient of a matrix shared by several products is summed
// over them in order.
#include "kernels/cuda/cuda_gemm.cuh"

#include <cstdlib>
#include <cstring>

namespace {

enum { RESULT, BY_A, BY_B, PRODUCTS };

struct geometry {
    ab_shape batch, of_a, of_b; // all dimensions but the last two: of the result, of the operands
    int64_t items, m, k, n;
};

struct matmul_state {
    ab_cuda_gemm shape[PRODUCTS];
    ab_cuda_gemm_plan *plan[PRODUCTS]; // null: own kernel
};

static ab_shape batch_of(const ab_shape *shape) {
    ab_shape batch = *shape;
    batch.ndim -= 2;
    return batch;
}

static int64_t count_of(const ab_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++) count *= shape->dim[i];
    return count;
}

static geometry measure(const ab_op_io *io) {
    const ab_shape *a = &io->in[0]->shape, *b = &io->in[1]->shape;
    geometry g;
    g.of_a = batch_of(a);
    g.of_b = batch_of(b);
    g.m = a->dim[a->ndim - 2];
    g.k = a->dim[a->ndim - 1];
    g.n = b->dim[b->ndim - 1];
    ab_broadcast_shape(&g.of_a, &g.of_b, &g.batch);
    g.items = count_of(&g.batch);
    return g;
}

// ---- own kernels --------------------------------------------------------------------------------

// Maps items of the result to an operand's matrices, split into summed (`axes`) and kept dimensions.
static ab_strided matrices(const ab_shape *operand, const ab_shape *batch, int64_t size, unsigned axes,
                           bool is_reduced) {
    ab_strided whole = ab_strided_repeated(operand, batch);
    for (int i = 0; i < whole.ndim; i++) whole.stride[i] *= size;
    return ab_strided_part(&whole, axes, is_reduced);
}

// A factor of a product: a tensor of matrices, with row and column strides of the multiplied matrix.
struct factor {
    ab_span span;
    const ab_shape *batch;
    int64_t size, row, column;
};

// dst = left right; `to`: batch dimensions of dst.
static ab_cuda_tiles tiles_of(const geometry &g, const factor &left, const factor &right, ab_span dst,
                              const ab_shape *to, int64_t rows, int64_t columns, int64_t inner) {
    unsigned axes = ab_broadcast_axes(to, &g.batch);
    ab_cuda_tiles p = {};
    p.a = left.span;
    p.b = right.span;
    p.c = dst;
    p.rows = rows;
    p.columns = columns;
    p.inner = inner;
    p.a_row = left.row;
    p.a_inner = left.column;
    p.b_inner = right.row;
    p.b_column = right.column;
    p.c_row = columns;
    p.items = count_of(to);
    p.sums = g.items / p.items;
    p.a_item = matrices(left.batch, &g.batch, left.size, axes, false);
    p.a_sum = matrices(left.batch, &g.batch, left.size, axes, true);
    p.b_item = matrices(right.batch, &g.batch, right.size, axes, false);
    p.b_sum = matrices(right.batch, &g.batch, right.size, axes, true);
    p.c_item = matrices(to, &g.batch, rows * columns, axes, false);
    p.alpha = 1.0f;
    return p;
}

static ab_cuda_tiles own_product(const ab_op_io *io, int which, ab_span dst) {
    geometry g = measure(io);
    factor a = {ab_cuda_span(io->in[0]), &g.of_a, g.m * g.k, g.k, 1};
    factor b = {ab_cuda_span(io->in[1]), &g.of_b, g.k * g.n, g.n, 1};
    if (which == RESULT) return tiles_of(g, a, b, dst, &g.batch, g.m, g.n, g.k);
    factor dout = {ab_cuda_span(io->dout), &g.batch, g.m * g.n, g.n, 1};
    factor a_transposed = {a.span, a.batch, a.size, 1, g.k}, b_transposed = {b.span, b.batch, b.size, 1, g.n};
    return which == BY_A ? tiles_of(g, dout, b_transposed, dst, &g.of_a, g.m, g.k, g.n)
                         : tiles_of(g, a_transposed, dout, dst, &g.of_b, g.k, g.n, g.m);
}

// ---- library products ---------------------------------------------------------------------------

// If all items share one matrix b: a single product with the items' rows concatenated.
static ab_cuda_gemm one_matrix(const geometry &g, int which, int type) {
    int64_t rows = g.items * g.m;
    ab_cuda_gemm s = which == RESULT ? ab_cuda_gemm_of(rows, g.n, g.k, type)
                     : which == BY_A ? ab_cuda_gemm_of(rows, g.k, g.n, type)
                                     : ab_cuda_gemm_of(g.k, g.n, rows, type);
    if (which == BY_A) s.transpose_b = true, s.ldb = g.n;
    if (which == BY_B) s.transpose_a = true, s.lda = g.k;
    return s;
}

static ab_cuda_gemm one_each(const geometry &g, int which, int type) {
    ab_cuda_gemm s = which == RESULT ? ab_cuda_gemm_of(g.m, g.n, g.k, type)
                     : which == BY_A ? ab_cuda_gemm_of(g.m, g.k, g.n, type)
                                     : ab_cuda_gemm_of(g.k, g.n, g.m, type);
    if (which == BY_A) s.transpose_b = true, s.ldb = g.n;
    if (which == BY_B) s.transpose_a = true, s.lda = g.k;
    s.batch = g.items;
    s.step_a = which == BY_B ? g.m * g.k : which == BY_A ? g.m * g.n : g.m * g.k;
    s.step_b = which == BY_B ? g.m * g.n : g.k * g.n;
    s.step_c = which == RESULT ? g.m * g.n : which == BY_A ? g.m * g.k : g.k * g.n;
    return s;
}

static bool one_type(const ab_op_io *io, const ab_tensor *dst) {
    int type = ab_cuda_type(dst->format);
    return ab_cuda_type(io->in[0]->format) == type && ab_cuda_type(io->in[1]->format) == type &&
           (!io->dout || ab_cuda_type(io->dout->format) == type);
}

static ab_status plan_product(const ab_exec *exec, const ab_op_io *io, matmul_state *s, int which,
                              const ab_tensor *dst) {
    geometry g = measure(io);
    int64_t of_a = count_of(&g.of_a), of_b = count_of(&g.of_b);
    if (!dst || exec->path == AB_PATH_REFERENCE || !one_type(io, dst)) return AB_OK;
    int type = ab_cuda_type(dst->format);
    if (of_a == g.items && of_b == 1)
        s->shape[which] = one_matrix(g, which, type);
    else if (of_a == g.items && of_b == g.items)
        s->shape[which] = one_each(g, which, type);
    else
        return AB_OK;
    s->shape[which].tf32 = exec->tf32 && type == AB_ELEMENT_F32;
    return ab_cuda_gemm_make(&s->shape[which], &s->plan[which]);
}

// ---- the op -------------------------------------------------------------------------------------

static void release(ab_op_io *io) {
    matmul_state *s = static_cast<matmul_state *>(io->state);
    if (!s) return;
    for (ab_cuda_gemm_plan *plan : s->plan) ab_cuda_gemm_destroy(plan);
    free(s);
    io->state = nullptr;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    if (exec->accumulate_half && ab_cuda_type(io->out->format) != AB_ELEMENT_F32)
        return ab_fail(AB_UNAVAILABLE, "no CUDA product with half sums");
    matmul_state *s = static_cast<matmul_state *>(calloc(1, sizeof *s));
    if (!s) return ab_fail(AB_NO_MEMORY, "matmul: out of memory");
    io->state = s;
    const ab_tensor *dst[PRODUCTS] = {io->out, io->din[0], io->din[1]};
    ab_status status = AB_OK;
    for (int i = 0; i < PRODUCTS && status == AB_OK; i++) {
        status = plan_product(exec, io, s, i, dst[i]);
        size_t bytes = s->plan[i] ? s->plan[i]->workspace_bytes : 0;
        if (bytes > *workspace_bytes) *workspace_bytes = bytes;
    }
    if (status != AB_OK) release(io);
    return status;
}

static ab_status run(const ab_exec *exec, ab_op_io *io, int which, ab_tensor *dst) {
    matmul_state *s = static_cast<matmul_state *>(io->state);
    if (!dst) return AB_OK;
    void *a = which == BY_A ? const_cast<ab_tensor *>(io->dout)->data : io->in[0]->data;
    void *b = which == BY_B ? const_cast<ab_tensor *>(io->dout)->data : io->in[1]->data;
    auto own = [=](ab_span to) {
        ab_cuda_tiles tiles = own_product(io, which, to);
        return ab_cuda_tiles_run(&tiles);
    };
    return ab_cuda_store_and_show(
        exec, dst,
        [=] {
            if (!s->plan[which]) return own(ab_cuda_span(dst));
            return ab_cuda_gemm_run(s->plan[which], a, b, dst->data, 1.0f, 0.0f, nullptr, exec->workspace);
        },
        own);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) { return run(exec, io, RESULT, io->out); }

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    AB_TRY(run(exec, io, BY_A, io->din[0]));
    return run(exec, io, BY_B, io->din[1]);
}

static const char *describe(const ab_op_io *io, const char *pass) {
    const matmul_state *s = static_cast<const matmul_state *>(io->state);
    int which = strcmp(pass, "forward") == 0 ? RESULT : io->din[0] ? BY_A : BY_B;
    if (strcmp(pass, "backward_weights") == 0 || (which != RESULT && !io->din[which - 1])) return nullptr;
    return s->plan[which] ? s->plan[which]->text : "cuda:own";
}

static ab_op descriptor() {
    ab_op op = ab_cuda_op("matmul", prepare, forward, backward);
    op.release = release;
    op.describe = describe;
    return op;
}

} // namespace

const ab_op ab_cuda_matmul = descriptor();
