// lstm, gru and rnn on CUDA: one product for the input of all steps, one per step for the state, one kernel
// for the rest of a step. fp32 inside; a hidden state is rounded when stored and the next step reads the
// stored value (lstm.c, gru.c, rnn.c).
#include "kernels/cuda/cuda_fold.cuh"
#include "kernels/cuda/cuda_gemm.cuh"

#include <cstdlib>
#include <cstring>

namespace {

enum { W_IH, W_HH, B_IH, B_HH, WEIGHTS };
enum { BY_INPUT, BY_STATE, TO_STATE, TO_INPUT, TO_W_IH, TO_W_HH, PRODUCTS };
// fp32 arrays in the workspace. DGATES: pre-activation gate gradients; gru: DSTATE, those of what the state
// adds, else the same; SUMS, what it adds in a step; CELL, the state's gradient through z.
enum {
    W_IN,
    W_HIDDEN,
    INPUT,
    GATES,
    STATE,
    CELL,
    BEFORE,
    DGATES,
    DIN,
    DW_IN,
    DW_HIDDEN,
    PARTIAL,
    DSTATE,
    SUMS,
    ARRAYS
};
enum { TANH, RELU };
enum { RNN, LSTM, GRU };

struct recurrence {
    int kind;
    int64_t batch, steps, features, hidden;
    int64_t gates, kept; // rows of weights per hidden element, and numbers per hidden element in GATES
    bool relu;
    float *array[ARRAYS];
    float *cells; // lstm: of all steps
    void *library;
};

struct recurrent_state {
    ab_cuda_gemm shape[PRODUCTS];
    ab_cuda_gemm_plan *plan[PRODUCTS];
    size_t library_bytes;
};

// ---- set-up -------------------------------------------------------------------------------------

static recurrence recurrence_of(const ab_op_io *io, int kind) {
    static const int64_t gates[] = {1, 4, 3}, kept[] = {1, 4, 4};
    const ab_shape *in = &io->in[0]->shape;
    recurrence r = {};
    r.kind = kind;
    r.batch = in->dim[0];
    r.steps = in->dim[1];
    r.features = in->dim[2];
    r.hidden = ab_cuda_int(io, "hidden_size", 1);
    r.gates = gates[kind];
    r.kept = kept[kind];
    r.relu = ab_cuda_int(io, "nonlinearity", TANH) == RELU;
    return r;
}

static ab_fold bias_fold(const recurrence &r) {
    ab_shape shape = {2, {r.batch * r.steps, r.gates * r.hidden}};
    return ab_fold_of(&shape, 1u);
}

static void measure(const recurrence &r, int64_t size[ARRAYS]) {
    int64_t all = r.batch * r.steps, wide = r.gates * r.hidden;
    ab_fold fold = bias_fold(r);
    size[W_IN] = size[DW_IN] = wide * r.features;
    size[W_HIDDEN] = size[DW_HIDDEN] = wide * r.hidden;
    size[INPUT] = size[DIN] = all * r.features;
    size[GATES] = all * r.kept * r.hidden;
    size[DGATES] = all * wide;
    size[DSTATE] = r.kind == GRU ? all * wide : 0;
    size[SUMS] = r.kind == GRU ? r.batch * wide : 0;
    size[STATE] = size[CELL] = r.batch * r.hidden;
    size[BEFORE] = all * r.hidden;
    size[PARTIAL] = static_cast<int64_t>(ab_fold_bytes(&fold) / sizeof(float));
}

static size_t place(recurrence *r, const ab_op_io *io, size_t library_bytes, char *first) {
    int64_t size[ARRAYS];
    char *memory = first;
    measure(*r, size);
    r->library = memory;
    memory += ab_cuda_aligned(library_bytes);
    for (int i = 0; i < ARRAYS; i++) {
        r->array[i] = reinterpret_cast<float *>(memory);
        memory += ab_cuda_aligned(static_cast<size_t>(size[i]) * sizeof(float));
    }
    if (r->kind != RNN && io->saved[0]) r->array[GATES] = static_cast<float *>(io->saved[0]->data);
    if (r->kind == LSTM && io->saved[1]) r->cells = static_cast<float *>(io->saved[1]->data);
    if (r->kind != GRU) r->array[DSTATE] = r->array[DGATES];
    return static_cast<size_t>(memory - first);
}

static void shape_products(const recurrence &r, bool tf32, ab_cuda_gemm shape[PRODUCTS]) {
    int64_t all = r.batch * r.steps, wide = r.gates * r.hidden, f = r.features, h = r.hidden;
    shape[BY_INPUT] = ab_cuda_gemm_of(all, wide, f, AB_ELEMENT_F32);
    shape[BY_STATE] = ab_cuda_gemm_of(r.batch, wide, h, AB_ELEMENT_F32);
    shape[TO_STATE] = ab_cuda_gemm_of(r.batch, h, wide, AB_ELEMENT_F32);
    shape[TO_INPUT] = ab_cuda_gemm_of(all, f, wide, AB_ELEMENT_F32);
    shape[TO_W_IH] = ab_cuda_gemm_of(wide, f, all, AB_ELEMENT_F32);
    shape[TO_W_HH] = ab_cuda_gemm_of(wide, h, all, AB_ELEMENT_F32);
    for (int i : {BY_INPUT, BY_STATE}) {
        shape[i].transpose_b = true;
        shape[i].ldb = shape[i].inner;
    }
    for (int i : {TO_W_IH, TO_W_HH}) {
        shape[i].transpose_a = true;
        shape[i].lda = wide;
    }
    shape[BY_INPUT].ldc = r.kept * h;
    shape[BY_STATE].ldc = r.kind == GRU ? wide : r.steps * wide;
    shape[TO_STATE].lda = r.steps * wide;
    for (int i = 0; i < PRODUCTS; i++) shape[i].tf32 = tf32;
}

static void release(ab_op_io *io) {
    recurrent_state *s = static_cast<recurrent_state *>(io->state);
    if (!s) return;
    for (ab_cuda_gemm_plan *plan : s->plan) ab_cuda_gemm_destroy(plan);
    free(s);
    io->state = nullptr;
}

// cuBLASLt plans assume aligned matrices; those of a step are aligned if a row of gates is a multiple of 64
// bytes.
static ab_status make_plans(const recurrence &r, recurrent_state *s) {
    bool aligned = r.gates * r.hidden % 16 == 0;
    for (int i = 0; i < PRODUCTS; i++) {
        if ((i == BY_STATE || i == TO_STATE) && !aligned) continue;
        AB_TRY(ab_cuda_gemm_make(&s->shape[i], &s->plan[i]));
        size_t bytes = s->plan[i] ? s->plan[i]->workspace_bytes : 0;
        if (bytes > s->library_bytes) s->library_bytes = bytes;
    }
    return AB_OK;
}

// What the op keeps for backward is where the gates are.
static bool is_saved(const ab_op_io *io, int kind) {
    return kind == RNN || (io->saved[0] && (kind == GRU || io->saved[1]));
}

template <int KIND>
static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    if (exec->accumulate_half && ab_cuda_type(io->out->format) != AB_ELEMENT_F32)
        return ab_fail(AB_UNAVAILABLE, "no CUDA product with half sums");
    if (!is_saved(io, KIND)) return ab_fail(AB_UNAVAILABLE, "%s: nothing is saved", io->op->name);
    recurrent_state *s = static_cast<recurrent_state *>(calloc(1, sizeof *s));
    if (!s) return ab_fail(AB_NO_MEMORY, "%s: out of memory", io->op->name);
    io->state = s;
    recurrence r = recurrence_of(io, KIND);
    shape_products(r, exec->tf32, s->shape);
    ab_status status = exec->path == AB_PATH_REFERENCE ? AB_OK : make_plans(r, s);
    *workspace_bytes = place(&r, io, s->library_bytes, nullptr);
    if (status != AB_OK) release(io);
    return status;
}

// ---- helpers ------------------------------------------------------------------------------------

struct run {
    recurrence r;
    recurrent_state *s;
    int type; // storage type of the hidden states
};

static ab_status multiply(const run &x, int product, float *a, float *b, float *c, float beta) {
    return ab_cuda_multiply(x.s->plan[product], &x.s->shape[product], a, b, c, 1.0f, beta, x.r.library);
}

static ab_status widen(float *to, const ab_tensor *from) {
    return ab_launch_map(ab_identity(), ab_cuda_span_of(to, AB_ELEMENT_F32), ab_cuda_span(from),
                         ab_cuda_empty_span(), ab_cuda_count(from), "recurrent_widen");
}

static ab_status give(const ab_exec *exec, ab_tensor *to, float *from) {
    int64_t n = ab_cuda_count(to);
    ab_span values = ab_cuda_span_of(from, AB_ELEMENT_F32);
    return ab_cuda_emit(exec, to, [=](ab_span out) {
        return ab_launch_map(ab_identity(), out, values, ab_cuda_empty_span(), n, "recurrent_result");
    });
}

static run open_run(const ab_exec *exec, const ab_op_io *io, int kind) {
    run x;
    x.r = recurrence_of(io, kind);
    x.s = static_cast<recurrent_state *>(io->state);
    x.type = ab_cuda_type(io->out->format);
    place(&x.r, io, x.s->library_bytes, static_cast<char *>(exec->workspace));
    return x;
}

static ab_status widen_operands(const run &x, const ab_op_io *io) {
    AB_TRY(widen(x.r.array[W_IN], io->param[W_IH]));
    AB_TRY(widen(x.r.array[W_HIDDEN], io->param[W_HH]));
    return widen(x.r.array[INPUT], io->in[0]);
}

// Both biases; gru: that of the input for n, and that of the state in the row after it.
struct bias_of {
    ab_span ih, hh;
    int64_t wide, hidden;
    bool gru;
    __device__ float operator()(int64_t i) const {
        int64_t k;
        ab_divide(i, wide, &k);
        if (!ih.data) return 0.0f;
        if (gru && k >= 3 * hidden) return ab_span_at(hh, k - hidden);
        if (gru && k >= 2 * hidden) return ab_span_at(ih, k);
        return ab_span_at(ih, k) + ab_span_at(hh, k);
    }
};

// ---- forward ------------------------------------------------------------------------------------

__device__ static float lstm_forward(float *gate, int64_t h, float before, float *cell) {
    float i = ab_f_sigmoid(gate[0]), f = ab_f_sigmoid(gate[h]), g = ab_tanhf(gate[2 * h]),
          o = ab_f_sigmoid(gate[3 * h]);
    *cell = f * before + i * g;
    gate[0] = i;
    gate[h] = f;
    gate[2 * h] = g;
    gate[3 * h] = o;
    return o * ab_tanhf(*cell);
}

// sums: what the state adds; NULL at the first step. The state's part of n goes to the fourth row.
__device__ static float gru_forward(float *gate, int64_t h, const float *sums, float before) {
    float add_r = sums ? sums[0] : 0.0f, add_z = sums ? sums[h] : 0.0f, add_n = sums ? sums[2 * h] : 0.0f;
    float r = ab_f_sigmoid(gate[0] + add_r), z = ab_f_sigmoid(gate[h] + add_z), part = gate[3 * h] + add_n;
    float n = ab_tanhf(gate[2 * h] + r * part);
    gate[0] = r;
    gate[h] = z;
    gate[2 * h] = n;
    gate[3 * h] = part;
    return (1.0f - z) * n + z * before;
}

// States of step t of all samples, from the pre-activations in GATES.
__global__ static void forward_step(recurrence r, ab_span out, int type, int64_t t) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, n = r.batch * r.hidden, h = r.hidden, k;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t at = ab_divide(i, h, &k) * r.steps + t;
        float *gate = r.array[GATES] + at * r.kept * h + k, state;
        if (r.kind == GRU)
            state = gru_forward(gate, h, t > 0 ? r.array[SUMS] + i / h * 3 * h + k : nullptr,
                                t > 0 ? r.array[STATE][i] : 0.0f);
        else if (r.kind == LSTM)
            state = lstm_forward(gate, h, t > 0 ? r.cells[(at - 1) * h + k] : 0.0f, &r.cells[at * h + k]);
        else
            state = r.relu ? (*gate > 0.0f || isnan(*gate) ? *gate : 0.0f) : ab_tanhf(*gate);
        uint32_t room = 0; // the state as stored
        ab_store(&room, type, 0, state);
        r.array[STATE][i] = ab_load(&room, type, 0);
        ab_store(out.data, out.type, at * h + k, state);
    }
}

static ab_status forward_into(const run &x, const ab_op_io *io, ab_span out) {
    const recurrence &r = x.r;
    int64_t wide = r.kept * r.hidden;
    bool gru = r.kind == GRU;
    bias_of bias = {ab_cuda_optional(io->param[B_IH]), ab_cuda_optional(io->param[B_HH]), wide, r.hidden,
                    gru};
    AB_TRY(widen_operands(x, io));
    AB_TRY(ab_launch_each(bias, ab_cuda_span_of(r.array[GATES], AB_ELEMENT_F32), r.batch * r.steps * wide,
                          "recurrent_bias"));
    AB_TRY(multiply(x, BY_INPUT, r.array[INPUT], r.array[W_IN], r.array[GATES], 1.0f));
    for (int64_t t = 0; t < r.steps; t++) {
        if (t > 0)
            AB_TRY(multiply(x, BY_STATE, r.array[STATE], r.array[W_HIDDEN],
                            gru ? r.array[SUMS] : r.array[GATES] + t * wide, gru ? 0.0f : 1.0f));
        AB_CUDA_LAUNCH(forward_step, ab_cuda_blocks(r.batch * r.hidden, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                       ab_cuda_context()->stream, r, out, x.type, t);
        AB_TRY(ab_cuda_launched("recurrent_step"));
    }
    return AB_OK;
}

template <int KIND> static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    run x = open_run(exec, io, KIND);
    return ab_cuda_emit(exec, io->out, [&](ab_span out) { return forward_into(x, io, out); });
}

// ---- backward -----------------------------------------------------------------------------------

struct dout_at {
    recurrence r;
    ab_span dout;
    int64_t t;
    __device__ float operator()(int64_t i) const {
        int64_t k, sample = ab_divide(i, r.hidden, &k);
        float own = ab_span_at(dout, (sample * r.steps + t) * r.hidden + k);
        return r.kind == GRU ? own + r.array[CELL][i] : own;
    }
};

// Hidden states of the previous step, as read by the gates.
struct previous_state {
    recurrence r;
    ab_span out;
    __device__ float operator()(int64_t i) const {
        int64_t t;
        ab_divide(i / r.hidden, r.steps, &t);
        return t > 0 ? ab_span_at(out, i - r.hidden) : 0.0f;
    }
};

__device__ static void lstm_backward(const recurrence &r, int64_t i, int64_t at, int64_t k, int64_t t) {
    int64_t h = r.hidden;
    const float *gate = r.array[GATES] + at * 4 * h + k;
    float *d = r.array[DGATES] + at * 4 * h + k, *dc = &r.array[CELL][i];
    float gi = gate[0], gf = gate[h], gg = gate[2 * h], go = gate[3 * h], dh = r.array[STATE][i];
    float before = t > 0 ? r.cells[(at - 1) * h + k] : 0.0f, c = ab_tanhf(r.cells[at * h + k]);
    float sum = *dc + dh * go * ((1.0f - c) * (1.0f + c));
    d[0] = sum * gg * (gi * (1.0f - gi));
    d[h] = sum * before * (gf * (1.0f - gf));
    d[2 * h] = sum * gi * ((1.0f - gg) * (1.0f + gg));
    d[3 * h] = dh * c * (go * (1.0f - go));
    *dc = sum * gf;
}

// As gru_step_backward in vec_math.c; before: the previous state as stored.
__device__ static void gru_backward(const recurrence &r, int64_t i, int64_t at, int64_t k, float before) {
    int64_t h = r.hidden;
    const float *gate = r.array[GATES] + at * 4 * h + k;
    float *d_in = r.array[DGATES] + at * 3 * h + k, *d_state = r.array[DSTATE] + at * 3 * h + k;
    float gr = gate[0], z = gate[h], n = gate[2 * h], dh = r.array[STATE][i];
    float by_n = dh * (1.0f - z) * ((1.0f - n) * (1.0f + n));
    d_in[0] = d_state[0] = by_n * gate[3 * h] * (gr * (1.0f - gr));
    d_in[h] = d_state[h] = dh * (before - n) * (z * (1.0f - z));
    d_in[2 * h] = by_n;
    d_state[2 * h] = by_n * gr;
    r.array[CELL][i] = dh * z;
}

__global__ static void backward_step(recurrence r, ab_span out, int64_t t) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, n = r.batch * r.hidden, k;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t at = ab_divide(i, r.hidden, &k) * r.steps + t;
        if (r.kind == LSTM) {
            lstm_backward(r, i, at, k, t);
            continue;
        }
        if (r.kind == GRU) {
            gru_backward(r, i, at, k, t > 0 ? ab_span_at(out, (at - 1) * r.hidden + k) : 0.0f);
            continue;
        }
        float state = ab_span_at(out, at * r.hidden + k);
        float slope = r.relu ? (state > 0.0f ? 1.0f : 0.0f) : 1.0f - state * state;
        r.array[DGATES][at * r.hidden + k] = r.array[STATE][i] * slope;
    }
}

// From the last step to the first. STATE: gradient of the hidden state, CELL: of the cell state.
static ab_status gate_gradients(const run &x, const ab_op_io *io) {
    const recurrence &r = x.r;
    cudaStream_t stream = ab_cuda_context()->stream;
    ab_span state = ab_cuda_span_of(r.array[STATE], AB_ELEMENT_F32), out = ab_cuda_span(io->out);
    int64_t n = r.batch * r.hidden, wide = r.gates * r.hidden;
    AB_CUDA_TRY(cudaMemsetAsync(r.array[CELL], 0, static_cast<size_t>(n) * sizeof(float), stream));
    for (int64_t t = r.steps - 1; t >= 0; t--) {
        dout_at f = {r, ab_cuda_span(io->dout), t};
        AB_TRY(ab_launch_each(f, state, n, "recurrent_dout"));
        if (t + 1 < r.steps)
            AB_TRY(multiply(x, TO_STATE, r.array[DSTATE] + (t + 1) * wide, r.array[W_HIDDEN], r.array[STATE],
                            1.0f));
        AB_CUDA_LAUNCH(backward_step, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, stream, r, out,
                       t);
        AB_TRY(ab_cuda_launched("recurrent_step_backward"));
    }
    return AB_OK;
}

struct gate_at {
    const float *gates;
    __device__ float operator()(int64_t i) const { return gates[i]; }
};

static ab_status weight_gradients(const ab_exec *exec, const run &x, ab_op_io *io) {
    const recurrence &r = x.r;
    if (io->dparam[W_IH]) {
        AB_TRY(multiply(x, TO_W_IH, r.array[DGATES], r.array[INPUT], r.array[DW_IN], 0.0f));
        AB_TRY(give(exec, io->dparam[W_IH], r.array[DW_IN]));
    }
    if (io->dparam[W_HH]) {
        previous_state f = {r, ab_cuda_span(io->out)};
        AB_TRY(ab_launch_each(f, ab_cuda_span_of(r.array[BEFORE], AB_ELEMENT_F32),
                              r.batch * r.steps * r.hidden, "recurrent_before"));
        AB_TRY(multiply(x, TO_W_HH, r.array[DSTATE], r.array[BEFORE], r.array[DW_HIDDEN], 0.0f));
        AB_TRY(give(exec, io->dparam[W_HH], r.array[DW_HIDDEN]));
    }
    ab_fold fold = bias_fold(r);
    void *partial = r.array[PARTIAL];
    for (int i = B_IH; i <= B_HH; i++) {
        gate_at f = {r.array[i == B_IH ? DGATES : DSTATE]};
        if (io->dparam[i])
            AB_TRY(ab_cuda_emit(exec, io->dparam[i], [=](ab_span out) {
                return ab_fold_into(ab_plus(), f, fold, 1.0, partial, out);
            }));
    }
    return AB_OK;
}

template <int KIND> static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    run x = open_run(exec, io, KIND);
    AB_TRY(widen_operands(x, io));
    AB_TRY(gate_gradients(x, io));
    AB_TRY(weight_gradients(exec, x, io));
    if (!io->din[0]) return AB_OK;
    AB_TRY(multiply(x, TO_INPUT, x.r.array[DGATES], x.r.array[W_IN], x.r.array[DIN], 0.0f));
    return give(exec, io->din[0], x.r.array[DIN]);
}

static const char *describe(const ab_op_io *io, const char *pass) {
    const recurrent_state *s = static_cast<const recurrent_state *>(io->state);
    if (!ab_cuda_describe_own(io, pass)) return nullptr;
    return ab_cuda_own_with(s->plan[BY_INPUT]);
}

template <int KIND> static ab_op descriptor(const char *name) {
    ab_op op = ab_cuda_op(name, prepare<KIND>, forward<KIND>, backward<KIND>);
    op.release = release;
    op.describe = describe;
    return op;
}

} // namespace

const ab_op ab_cuda_lstm = descriptor<LSTM>("lstm");
const ab_op ab_cuda_gru = descriptor<GRU>("gru");
const ab_op ab_cuda_rnn = descriptor<RNN>("rnn");
