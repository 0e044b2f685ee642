// scaled_dot_product_attention on CUDA, in chunks of heads limited by the size of the scores. Heads are
// packed as fp32; products of packed heads use cuBLASLt or own tiles. Mask, softmax, dropout and the gradient
// of the scores run with one block per query. fp32 inside, one rounding, as on the CPU (formulas:
// attention.c).
#include "kernels/core/elementary64.h"
#include "kernels/cuda/cuda_fold.cuh"
#include "kernels/cuda/cuda_gemm.cuh"
#include "kernels/ops/elementwise/dropout_mask.cuh"

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace {

enum { Q, K, V, PARTS };
enum { SCORES, OUT, BY_V, BY_P, BY_Q, BY_K, PRODUCTS };
enum { ROW_THREADS = 128 };
static const int64_t most_scores = 1 << 24;

// A tensor viewed as [batch, heads, rows, width]; strides in elements.
struct head_view {
    ab_span span;
    int64_t offset, batch_step, head_step, row_step, rows, width;
};

struct attention_mask {
    const int32_t *takes_part;
    ab_span bias; // floating mask; both NULL: no mask
    int64_t step[4];
};

struct attention {
    int64_t batch, heads, chunk; // chunk: heads per chunk, a divisor of batch * heads
    head_view in[PARTS], out, dout;
    attention_mask mask;
    bool causal;
    float scale, masked;
    float *log_sum;
    ab_dropout_mask dropout;
};

struct attention_state {
    ab_cuda_gemm shape[PRODUCTS];
    ab_cuda_gemm_plan *plan[PRODUCTS];
    size_t library_bytes;
};

// fp32 arrays of a chunk in the workspace, after the library's workspace.
struct chunk_memory {
    void *library;
    float *part[PARTS], *dout, *result[PARTS], *p, *dp; // result[0] is also used for out
};

// ---- geometry -----------------------------------------------------------------------------------

static int inputs_of(const ab_op_io *io) {
    if (!io->in[1]) return 1;
    if (!io->in[2]) return 2;
    return io->in[3] ? 4 : 3;
}

static bool is_packed(const ab_op_io *io) { return inputs_of(io) <= 2; }

static head_view view_of(const ab_tensor *tensor, int64_t heads, int64_t part, int64_t parts) {
    const ab_shape *s = &tensor->shape;
    bool four = s->ndim == 4;
    head_view h;
    h.span = ab_cuda_span(tensor);
    h.rows = s->dim[s->ndim - 2];
    h.width = four ? s->dim[3] : s->dim[2] / parts / heads;
    h.row_step = four ? h.width : parts * heads * h.width;
    h.head_step = four ? h.rows * h.width : h.width;
    h.batch_step = (four ? s->dim[1] : 1) * h.rows * h.row_step;
    h.offset = part * heads * h.width;
    return h;
}

static attention_mask mask_of(const ab_op_io *io) {
    attention_mask m = {nullptr, ab_cuda_empty_span(), {0, 0, 0, 0}};
    int inputs = inputs_of(io);
    if (inputs % 2 != 0) return m;
    const ab_tensor *tensor = io->in[inputs - 1];
    int64_t step = 1;
    for (int i = tensor->shape.ndim - 1, axis = 3; i >= 0; i--, axis--) {
        m.step[axis] = tensor->shape.dim[i] == 1 ? 0 : step;
        step *= tensor->shape.dim[i];
    }
    if (tensor->format)
        m.bias = ab_cuda_span(tensor);
    else
        m.takes_part = static_cast<const int32_t *>(tensor->data);
    return m;
}

// Rounded to q's format, as in models that build masks by hand.
static float mask_value_of(const ab_op_io *io) {
    double value = ab_cuda_float(io, "mask_value", 0.0);
    float rounded = value == 0.0 ? -INFINITY : static_cast<float>(value);
    uint32_t room = 0;
    int type = ab_cuda_type(io->in[0]->format);
    ab_store(&room, type, 0, rounded);
    return ab_load(&room, type, 0);
}

static int64_t chunk_of(int64_t heads, int64_t scores) {
    int64_t chunk = heads;
    while (chunk > 1 && (heads % chunk != 0 || chunk * scores > most_scores)) chunk--;
    return chunk;
}

static attention attention_of(const ab_exec *exec, const ab_op_io *io) {
    int64_t heads = ab_cuda_int(io, "num_heads", 1), parts = is_packed(io) ? 3 : 1;
    attention t = {};
    for (int i = 0; i < PARTS; i++)
        t.in[i] = view_of(io->in[parts == 3 ? 0 : i], heads, parts == 3 ? i : 0, parts);
    t.out = view_of(io->out, heads, 0, 1);
    if (io->dout) t.dout = view_of(io->dout, heads, 0, 1);
    t.batch = io->in[0]->shape.dim[0];
    t.heads = io->in[0]->shape.ndim == 4 ? io->in[0]->shape.dim[1] : heads;
    t.chunk = chunk_of(t.batch * t.heads, t.in[Q].rows * t.in[K].rows);
    t.mask = mask_of(io);
    t.causal = ab_cuda_bool(io, "is_causal", false);
    double scale = ab_cuda_float(io, "scale", 0.0);
    t.scale = static_cast<float>(scale == 0.0 ? 1.0 / std::sqrt(static_cast<double>(t.in[Q].width)) : scale);
    t.masked = mask_value_of(io);
    t.log_sum = io->saved[0] ? static_cast<float *>(io->saved[0]->data) : nullptr;
    t.dropout = ab_cuda_dropout_mask(exec, io, ab_cuda_float(io, "dropout_p", 0.0));
    return t;
}

// ---- set-up -------------------------------------------------------------------------------------

static void shape_products(const attention &t, bool tf32, ab_cuda_gemm shape[PRODUCTS]) {
    int64_t queries = t.in[Q].rows, keys = t.in[K].rows, width = t.in[Q].width, values = t.in[V].width;
    shape[SCORES] = ab_cuda_gemm_of(queries, keys, width, AB_ELEMENT_F32);
    shape[OUT] = ab_cuda_gemm_of(queries, values, keys, AB_ELEMENT_F32);
    shape[BY_V] = ab_cuda_gemm_of(keys, values, queries, AB_ELEMENT_F32);
    shape[BY_P] = ab_cuda_gemm_of(queries, keys, values, AB_ELEMENT_F32);
    shape[BY_Q] = ab_cuda_gemm_of(queries, width, keys, AB_ELEMENT_F32);
    shape[BY_K] = ab_cuda_gemm_of(keys, width, queries, AB_ELEMENT_F32);
    for (int i : {SCORES, BY_P}) {
        shape[i].transpose_b = true;
        shape[i].ldb = shape[i].inner;
    }
    for (int i : {BY_V, BY_K}) {
        shape[i].transpose_a = true;
        shape[i].lda = shape[i].rows;
    }
    for (int i = 0; i < PRODUCTS; i++) {
        shape[i].batch = t.chunk;
        shape[i].step_a = shape[i].rows * shape[i].inner;
        shape[i].step_b = shape[i].inner * shape[i].columns;
        shape[i].step_c = shape[i].rows * shape[i].columns;
        shape[i].tf32 = tf32;
    }
}

static float *take(char **memory, int64_t floats) {
    float *piece = reinterpret_cast<float *>(*memory);
    *memory += ab_cuda_aligned(static_cast<size_t>(floats) * sizeof(float));
    return piece;
}

// Returns the bytes needed; `first` null: only measures.
static size_t place(const attention &t, size_t library_bytes, char *first, chunk_memory *m) {
    char *memory = first;
    m->library = memory;
    memory += ab_cuda_aligned(library_bytes);
    for (int i = 0; i < PARTS; i++) m->part[i] = take(&memory, t.chunk * t.in[i].rows * t.in[i].width);
    m->dout = take(&memory, t.chunk * t.out.rows * t.out.width);
    int64_t of_out = t.out.rows * t.out.width;
    for (int i = 0; i < PARTS; i++) {
        int64_t size = t.in[i].rows * t.in[i].width;
        m->result[i] = take(&memory, t.chunk * (i == 0 && of_out > size ? of_out : size));
    }
    m->p = take(&memory, t.chunk * t.in[Q].rows * t.in[K].rows);
    m->dp = take(&memory, t.chunk * t.in[Q].rows * t.in[K].rows);
    return static_cast<size_t>(memory - first);
}

static void release(ab_op_io *io) {
    attention_state *s = static_cast<attention_state *>(io->state);
    if (!s) return;
    for (ab_cuda_gemm_plan *plan : s->plan) ab_cuda_gemm_destroy(plan);
    free(s);
    io->state = nullptr;
}

static ab_status check(const ab_exec *exec, const ab_op_io *io) {
    int inputs = inputs_of(io);
    bool numbers = true;
    for (int i = 0; i < (is_packed(io) ? 1 : 3); i++) numbers = numbers && io->in[i]->format;
    if (!numbers || (inputs % 2 == 0 && io->din[inputs - 1]))
        return ab_fail(AB_UNAVAILABLE, "attention: no CUDA kernel for these operands");
    if (exec->accumulate_half && ab_cuda_type(io->out->format) != AB_ELEMENT_F32)
        return ab_fail(AB_UNAVAILABLE, "no CUDA product with half sums");
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    AB_TRY(check(exec, io));
    attention_state *s = static_cast<attention_state *>(calloc(1, sizeof *s));
    if (!s) return ab_fail(AB_NO_MEMORY, "attention: out of memory");
    io->state = s;
    attention t = attention_of(exec, io);
    chunk_memory m;
    ab_status status = AB_OK;
    shape_products(t, exec->tf32, s->shape);
    for (int i = 0; i < PRODUCTS && status == AB_OK && exec->path != AB_PATH_REFERENCE; i++) {
        status = ab_cuda_gemm_make(&s->shape[i], &s->plan[i]);
        size_t bytes = s->plan[i] ? s->plan[i]->workspace_bytes : 0;
        if (bytes > s->library_bytes) s->library_bytes = bytes;
    }
    *workspace_bytes = place(t, s->library_bytes, nullptr, &m);
    if (status != AB_OK) release(io);
    return status;
}

// ---- packing ------------------------------------------------------------------------------------

// Memory offset in the tensor of element i of a chunk's packed heads; `first`: the chunk's first head.
__device__ static int64_t place_of(const head_view &h, int64_t heads, int64_t first, int64_t i) {
    int64_t column, row, number, head = ab_divide(ab_divide(i, h.width, &column), h.rows, &row);
    int64_t batch = ab_divide(first + head, heads, &number);
    return h.offset + batch * h.batch_step + number * h.head_step + row * h.row_step + column;
}

struct packed_head {
    head_view h;
    int64_t heads, first;
    __device__ float operator()(int64_t i) const { return ab_span_at(h.span, place_of(h, heads, first, i)); }
};

static ab_status pack(const attention &t, const head_view &h, int64_t first, float *to) {
    packed_head f = {h, t.heads, first};
    return ab_launch_each(f, ab_cuda_span_of(to, AB_ELEMENT_F32), t.chunk * h.rows * h.width,
                          "attention_pack");
}

__global__ static void unpack_heads(head_view h, int64_t heads, int64_t first, const float *from, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        ab_store(h.span.data, h.span.type, place_of(h, heads, first, i), from[i]);
}

static ab_status unpack(const attention &t, const head_view &h, int64_t first, const float *from) {
    int64_t n = t.chunk * h.rows * h.width;
    if (!h.span.data) return AB_OK;
    AB_CUDA_LAUNCH(unpack_heads, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                   ab_cuda_context()->stream, h, t.heads, first, from, n);
    return ab_cuda_launched("attention_unpack");
}

// ---- one block per query ------------------------------------------------------------------------

struct query {
    int64_t head, row, keys, seen; // head: index over batch * heads; seen: keys not hidden by the causal mask
};

__device__ static query query_at(const attention &t, int64_t first, int64_t number) {
    query q;
    q.head = first + ab_divide(number, t.in[Q].rows, &q.row);
    q.keys = t.in[K].rows;
    q.seen = t.causal && isinf(t.masked) && q.row + 1 < q.keys ? q.row + 1 : q.keys;
    return q;
}

__device__ static float masked_score(const attention &t, const query &q, int64_t key, float score) {
    const attention_mask &m = t.mask;
    if (t.causal && key > q.row) score += t.masked;
    if (!m.takes_part && !m.bias.data) return score;
    int64_t number, batch = ab_divide(q.head, t.heads, &number);
    int64_t at = batch * m.step[0] + number * m.step[1] + q.row * m.step[2] + key * m.step[3];
    if (!m.takes_part) return score + ab_span_at(m.bias, at);
    return m.takes_part[at] ? score : score + t.masked;
}

// Ignores NaN, which the sum propagates.
struct larger_number {
    __device__ double operator()(double a, double b) const { return b > a ? b : a; }
};

// The log of the sum of the row's exponentials: -inf if all keys are masked, NaN if a score is NaN.
__device__ static float log_sum_of(const float *score, int64_t seen, float *shift, float *factor) {
    double best = -INFINITY, sum = 0.0;
    for (int64_t j = threadIdx.x; j < seen; j += ROW_THREADS) {
        best = larger_number()(best, static_cast<double>(score[j]));
        sum += isnan(score[j]) ? static_cast<double>(score[j]) : 0.0;
    }
    best = ab_block_fold<ROW_THREADS>(larger_number(), best);
    sum = ab_block_fold<ROW_THREADS>(ab_plus(), sum);
    *shift = *factor = 0.0f;
    if (best == -INFINITY) return isnan(sum) ? static_cast<float>(sum) : -INFINITY;
    *shift = static_cast<float>(best);
    for (int64_t j = threadIdx.x; j < seen; j += ROW_THREADS)
        sum += static_cast<double>(ab_expf(score[j] - *shift));
    sum = ab_block_fold<ROW_THREADS>(ab_plus(), sum);
    *factor = static_cast<float>(1.0 / sum);
    return static_cast<float>(best + ab_log(sum));
}

// Converts scores in p to probabilities: from log_sum or, forward (`fresh`), computing and writing it.
// dropped (may alias p): after dropout.
__global__ static void probabilities(attention t, int64_t first, bool fresh, float *p, float *dropped) {
    for (int64_t r = blockIdx.x; r < t.chunk * t.in[Q].rows; r += gridDim.x) {
        query q = query_at(t, first, r);
        float *row = p + r * q.keys, shift = 0.0f, factor = 1.0f, log_sum;
        int64_t all = q.head * t.in[Q].rows + q.row;
        for (int64_t j = threadIdx.x; j < q.seen; j += ROW_THREADS) row[j] = masked_score(t, q, j, row[j]);
        if (fresh)
            log_sum = log_sum_of(row, q.seen, &shift, &factor);
        else
            shift = log_sum = t.log_sum[all];
        if (fresh && t.log_sum && threadIdx.x == 0) t.log_sum[all] = log_sum;
        for (int64_t j = threadIdx.x; j < q.keys; j += ROW_THREADS) {
            bool nobody = j >= q.seen || log_sum == -INFINITY;
            float value = nobody ? 0.0f : isnan(log_sum) ? log_sum : ab_expf(row[j] - shift) * factor;
            row[j] = value;
            if (t.dropout.threshold) dropped[r * q.keys + j] = t.dropout.drop(all * q.keys + j, value);
        }
        __syncthreads();
    }
}

// Replaces dp with the gradient of the scores: P (dP - sum of P dP), dP with the dropout mask applied.
__global__ static void score_gradients(attention t, int64_t first, const float *p, float *dp) {
    for (int64_t r = blockIdx.x; r < t.chunk * t.in[Q].rows; r += gridDim.x) {
        query q = query_at(t, first, r);
        const float *row = p + r * q.keys;
        float *gradient = dp + r * q.keys;
        int64_t all = q.head * t.in[Q].rows + q.row;
        double dot = 0.0;
        for (int64_t j = threadIdx.x; j < q.keys; j += ROW_THREADS) {
            if (t.dropout.threshold) gradient[j] = t.dropout.drop(all * q.keys + j, gradient[j]);
            dot += static_cast<double>(row[j]) * static_cast<double>(gradient[j]);
        }
        float sum = static_cast<float>(ab_block_fold<ROW_THREADS>(ab_plus(), dot));
        for (int64_t j = threadIdx.x; j < q.keys; j += ROW_THREADS)
            gradient[j] = row[j] * (gradient[j] - sum);
    }
}

static unsigned query_blocks(const attention &t) {
    int64_t rows = t.chunk * t.in[Q].rows;
    return static_cast<unsigned>(rows < 1 << 20 ? rows : 1 << 20);
}

// ---- passes -------------------------------------------------------------------------------------

struct pass {
    attention t;
    attention_state *s;
    chunk_memory m;
};

static pass open_pass(const ab_exec *exec, const ab_op_io *io) {
    pass x;
    x.t = attention_of(exec, io);
    x.s = static_cast<attention_state *>(io->state);
    place(x.t, x.s->library_bytes, static_cast<char *>(exec->workspace), &x.m);
    return x;
}

static ab_status multiply(const pass &x, int product, float *a, float *b, float *c, float alpha) {
    return ab_cuda_multiply(x.s->plan[product], &x.s->shape[product], a, b, c, alpha, 0.0f, x.m.library);
}

// p: probabilities of the chunk's heads; `dropped`: after dropout.
static ab_status make_probabilities(const pass &x, int64_t first, bool fresh, float *dropped) {
    for (int i = 0; i < PARTS; i++) AB_TRY(pack(x.t, x.t.in[i], first, x.m.part[i]));
    AB_TRY(multiply(x, SCORES, x.m.part[Q], x.m.part[K], x.m.p, x.t.scale));
    AB_CUDA_LAUNCH(probabilities, query_blocks(x.t), ROW_THREADS, 0, ab_cuda_context()->stream, x.t, first,
                   fresh, x.m.p, dropped);
    return ab_cuda_launched("attention_probabilities");
}

static ab_status forward_into(const pass &x, ab_span out) {
    head_view to = x.t.out;
    to.span = out;
    for (int64_t first = 0; first < x.t.batch * x.t.heads; first += x.t.chunk) {
        AB_TRY(make_probabilities(x, first, true, x.m.p));
        AB_TRY(multiply(x, OUT, x.m.p, x.m.part[V], x.m.result[0], 1.0f));
        AB_TRY(unpack(x.t, to, first, x.m.result[0]));
    }
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    pass x = open_pass(exec, io);
    return ab_cuda_emit(exec, io->out, [&](ab_span out) { return forward_into(x, out); });
}

// Writes gradients to the views in `to`; data null: not wanted.
static ab_status backward_chunk(const pass &x, int64_t first, const head_view to[PARTS]) {
    const chunk_memory &m = x.m;
    AB_TRY(make_probabilities(x, first, false, m.dp));
    AB_TRY(pack(x.t, x.t.dout, first, m.dout));
    float *dropped = x.t.dropout.threshold ? m.dp : m.p;
    if (to[V].span.data) AB_TRY(multiply(x, BY_V, dropped, m.dout, m.result[V], 1.0f));
    AB_TRY(multiply(x, BY_P, m.dout, m.part[V], m.dp, 1.0f));
    AB_CUDA_LAUNCH(score_gradients, query_blocks(x.t), ROW_THREADS, 0, ab_cuda_context()->stream, x.t, first,
                   m.p, m.dp);
    AB_TRY(ab_cuda_launched("attention_scores_backward"));
    if (to[Q].span.data) AB_TRY(multiply(x, BY_Q, m.dp, m.part[K], m.result[Q], x.t.scale));
    if (to[K].span.data) AB_TRY(multiply(x, BY_K, m.dp, m.part[Q], m.result[K], x.t.scale));
    for (int i = 0; i < PARTS; i++) AB_TRY(unpack(x.t, to[i], first, m.result[i]));
    return AB_OK;
}

// Writes the gradients in `wanted` (bit i: din[i]); the first of them goes to `span`.
static ab_status backward_into(const pass &x, const ab_op_io *io, unsigned wanted, ab_span span, int shown) {
    head_view to[PARTS];
    for (int i = 0; i < PARTS; i++) {
        int tensor = is_packed(io) ? 0 : i;
        to[i] = x.t.in[i];
        to[i].span = !(wanted >> tensor & 1u) ? ab_cuda_empty_span()
                     : tensor == shown        ? span
                                              : ab_cuda_span(io->din[tensor]);
    }
    for (int64_t first = 0; first < x.t.batch * x.t.heads; first += x.t.chunk)
        AB_TRY(backward_chunk(x, first, to));
    return AB_OK;
}

// Gradients observed by a probe are computed one at a time.
static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    pass x = open_pass(exec, io);
    unsigned together = 0;
    for (int i = 0; i < (is_packed(io) ? 1 : PARTS); i++) {
        if (!io->din[i]) continue;
        if (!ab_cuda_shown(exec, io->din[i])) {
            together |= 1u << i;
            continue;
        }
        AB_TRY(ab_cuda_emit(exec, io->din[i],
                            [&](ab_span din) { return backward_into(x, io, 1u << i, din, i); }));
    }
    return together ? backward_into(x, io, together, ab_cuda_empty_span(), -1) : AB_OK;
}

static const char *describe(const ab_op_io *io, const char *pass_name) {
    const attention_state *s = static_cast<const attention_state *>(io->state);
    if (strcmp(pass_name, "backward_weights") == 0) return nullptr;
    if (strcmp(pass_name, "forward") == 0) return ab_cuda_own_with(s->plan[SCORES]);
    return io->din[0] || io->din[1] || io->din[2] ? ab_cuda_own_with(s->plan[BY_P]) : nullptr;
}

static ab_op descriptor() {
    ab_op op = ab_cuda_op("scaled_dot_product_attention", prepare, forward, backward);
    op.release = release;
    op.describe = describe;
    return op;
}

} // namespace

const ab_op ab_cuda_scaled_dot_product_attention = descriptor();
