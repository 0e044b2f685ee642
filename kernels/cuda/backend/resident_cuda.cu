// Steps decided on the GPU: scale, overflow, skip and the number of updates are device values; the host
// launches whole windows of steps and reads the records afterwards. Also graphs, which replay one step or
// several recorded once, and batch transfers on a second stream that overlap the steps before.
#include "kernels/cuda/backend/reductions_cuda.cuh"
#include "kernels/cuda/cuda_fold.cuh"

#include <cstdlib>
#include <cstring>

// A block handles CHUNK elements of one parameter.
enum { CHUNK = 4096, ITEM_THREADS = 128 };

namespace {
struct update_target {
    ab_span scaled, grad, weight, state[AB_UPDATE_MAX_STATES], model, ema; // data null if absent
    int64_t count;
    int group, first_chunk, chunks;
};

struct chunk {
    int target;
    int64_t first;
};
} // namespace

struct ab_resident {
    ab_resident_config config;
    int chunks;
    update_target *target; // this and all pointers up to `records`: device memory
    chunk *list;
    ab_step_state *state;
    ab_update_row *row;
    ab_update_row *item_row; // rows per parameter, for optimizers that measure norms
    double *sums, *norm;     // two per chunk; one per item
    int64_t *row_base;       // `taken` when the rows were set
    ab_step_record *records; // pinned host memory, written by the device
    cudaEvent_t *event;      // window + 1
    int64_t collected;       // steps already read by the host
};

// ---- kernels ------------------------------------------------------------------------------------

__global__ static void begin_step(ab_step_state *state, ab_span loss_grad, int batches) {
    ab_step_begin(state);
    ab_store(loss_grad.data, loss_grad.type, 0, ab_step_seed(state, batches));
}

__global__ static void end_batch(ab_step_state *state, ab_span loss) {
    ab_step_batch(state, ab_span_at(loss, 0));
}

__device__ static int64_t end_of(const chunk &c, const update_target &t) {
    return c.first + CHUNK < t.count ? c.first + CHUNK : t.count;
}

__global__ static void unscale_chunks(const chunk *list, const update_target *targets, ab_step_state *state) {
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    int64_t end = end_of(c, t);
    float inverse = static_cast<float>(1.0 / state->scale);
    int found = 0;
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        float x = ab_span_at(t.scaled, i);
        found |= !ab_f_finite(x);
        ab_store(t.grad.data, t.grad.type, i, x * inverse);
    }
    if (__syncthreads_or(found) && threadIdx.x == 0) state->found = 1; // all writers store the same value
}

// ---- clipping -----------------------------------------------------------------------------------

__global__ static void square_chunks(const chunk *list, const update_target *targets, double *sums) {
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    int64_t end = end_of(c, t);
    double sum = 0.0;
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        double g = static_cast<double>(ab_span_at(t.grad, i));
        sum += g * g;
    }
    sum = ab_block_fold<AB_CUDA_THREADS>(ab_plus(), sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// One block per item; the order of parts depends only on the size.
__device__ static double item_sum(const update_target &t, const double *sums) {
    double sum = 0.0;
    for (int k = threadIdx.x; k < t.chunks; k += ITEM_THREADS) sum += sums[t.first_chunk + k];
    return ab_block_fold<ITEM_THREADS>(ab_plus(), sum);
}

__global__ static void item_norms(const update_target *targets, const double *sums, double *norm) {
    const update_target t = targets[blockIdx.x];
    double sum = item_sum(t, sums);
    if (threadIdx.x == 0) norm[blockIdx.x] = ab_f_rounded(sqrt(sum), t.grad.type);
}

// One thread. type: common element type of the gradients.
__global__ static void clip_norm(const double *norm, int items, double limit, int type,
                                 ab_step_state *state) {
    double sum = 0.0;
    for (int i = 0; i < items; i++) sum += norm[i] * norm[i];
    state->grad_norm = ab_f_rounded(sqrt(sum), type);
    state->clip_factor = ab_f_clip_factor(limit, state->grad_norm, type);
}

__global__ static void limit_chunks(const chunk *list, const update_target *targets,
                                    const ab_step_state *state, float limit) {
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    int64_t end = end_of(c, t);
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x)
        ab_store(t.grad.data, t.grad.type, i, ab_f_limited(ab_span_at(t.grad, i), state->clip_factor, limit));
}

// ---- updates ------------------------------------------------------------------------------------

// One thread. Writes the record of the finished step; the state is then that of the next step.
__global__ static void decide_step(ab_scale_rule rule, ab_step_state *state, ab_span loss, int batches,
                                   ab_step_record *records, int window) {
    int place = static_cast<int>(state->step % window);
    records[place] = ab_step_end(&rule, state, ab_span_at(loss, 0), batches);
}

namespace {
// The constants of this step, or those of the parameter if norms are measured.
struct rows_now {
    const ab_update_row *rows, *item_row;
    const int64_t *base;
    const ab_step_state *state;
    int groups, kind;
    __device__ const ab_update_row &plain(const update_target &t) const {
        return rows[(state->taken - *base - 1) * groups + t.group];
    }
    __device__ const ab_update_row &of(const update_target &t, int item) const {
        return ab_f_needs_norms(kind) ? item_row[item] : plain(t);
    }
};
} // namespace

__device__ static void load_states(const update_target &t, int64_t i, float *held) {
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
        held[k] = t.state[k].data ? ab_span_at(t.state[k], i) : 0.0f;
}

// Sums of squares of the weights and of the values that the optimizer compares them with.
__global__ static void measure_chunks(const chunk *list, const update_target *targets, rows_now now,
                                      double *sums) {
    if (now.state->skip) return;
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    const ab_update_row row = now.plain(t);
    int64_t end = end_of(c, t);
    double weights = 0.0, others = 0.0;
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        float held[AB_UPDATE_MAX_STATES], w = ab_span_at(t.weight, i);
        load_states(t, i, held);
        double other =
            static_cast<double>(ab_f_norm_term(now.kind, row.value, ab_span_at(t.grad, i), w, held));
        weights += static_cast<double>(w) * static_cast<double>(w);
        others += other * other;
    }
    weights = ab_block_fold<AB_CUDA_THREADS>(ab_plus(), weights);
    others = ab_block_fold<AB_CUDA_THREADS>(ab_plus(), others);
    if (threadIdx.x != 0) return;
    sums[blockIdx.x] = weights;
    sums[gridDim.x + blockIdx.x] = others;
}

__global__ static void item_trust(const update_target *targets, rows_now now, const double *sums, int chunks,
                                  ab_update_row *item_row) {
    if (now.state->skip) return;
    const update_target t = targets[blockIdx.x];
    double weights = item_sum(t, sums), others = item_sum(t, sums + chunks);
    if (threadIdx.x != 0) return;
    ab_update_row row = now.plain(t);
    ab_f_set_trust(now.kind, &row, ab_f_trust(now.kind, &row, weights, others));
    item_row[blockIdx.x] = row;
}

// fresh: share of the new weight in the average from its second update on; the first copies the weight.
__global__ static void update_chunks(const chunk *list, const update_target *targets, rows_now now,
                                     float fresh) {
    if (now.state->skip) return;
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    const ab_update_row row = now.of(t, c.target);
    const float share = now.state->taken == 1 ? 1.0f : fresh;
    int64_t end = end_of(c, t);
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        float held[AB_UPDATE_MAX_STATES], weight = ab_span_at(t.weight, i);
        load_states(t, i, held);
        ab_f_update(now.kind, row.value, ab_span_at(t.grad, i), &weight, held);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
            if (t.state[k].data) ab_store(t.state[k].data, t.state[k].type, i, held[k]);
        ab_store(t.weight.data, t.weight.type, i, weight);
        if (t.model.data) ab_store(t.model.data, t.model.type, i, weight);
        if (t.ema.data)
            ab_store(t.ema.data, t.ema.type, i,
                     ab_f_average(ab_span_at(t.ema, i), ab_span_at(t.weight, i), share));
    }
}

// ---- life ---------------------------------------------------------------------------------------

static void resident_destroy(ab_resident *r) {
    if (!r) return;
    (void)cudaStreamSynchronize(ab_cuda_context()->stream);
    ab_cuda_give_back(r->target);
    ab_cuda_give_back(r->list);
    ab_cuda_give_back(r->state);
    ab_cuda_give_back(r->row);
    ab_cuda_give_back(r->item_row);
    ab_cuda_give_back(r->sums);
    ab_cuda_give_back(r->norm);
    ab_cuda_give_back(r->row_base);
    (void)cudaFreeHost(r->records);
    for (int i = 0; r->event && i <= r->config.window; i++)
        if (r->event[i]) (void)cudaEventDestroy(r->event[i]);
    free(r->event);
    free(r);
    (void)cudaGetLastError();
}

static update_target target_of(const ab_resident_config *config, int i) {
    const ab_update_item *update = &config->update[i];
    update_target t;
    t.scaled = ab_cuda_span(config->unscale[i].from);
    t.grad = ab_cuda_span(update->grad);
    t.weight = ab_cuda_span(update->weight);
    t.model = ab_cuda_optional(update->model);
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++) t.state[k] = ab_cuda_optional(update->state[k]);
    t.ema = ab_cuda_optional(config->ema ? config->ema[i] : nullptr);
    t.count = ab_cuda_count(update->weight);
    t.group = config->group[i];
    t.first_chunk = t.chunks = 0; // send_lists
    return t;
}

static bool all_known(const update_target &t) {
    bool known = t.scaled.type != AB_ELEMENT_NONE && t.grad.type != AB_ELEMENT_NONE &&
                 t.weight.type != AB_ELEMENT_NONE && t.model.type != AB_ELEMENT_NONE &&
                 t.ema.type != AB_ELEMENT_NONE;
    for (const ab_span &state : t.state) known = known && state.type != AB_ELEMENT_NONE;
    return known;
}

// Copies on the stream, which does not synchronise with the default one, and waits: the source is owned by
// the caller.
template <typename T> static ab_status on_device(T **block, const T *values, int count) {
    cudaStream_t stream = ab_cuda_context()->stream;
    size_t bytes = sizeof(T) * static_cast<size_t>(count > 0 ? count : 1);
    void *taken;
    AB_TRY(ab_cuda_take(bytes, &taken));
    *block = static_cast<T *>(taken);
    if (values && count > 0)
        AB_CUDA_TRY(cudaMemcpyAsync(*block, values, sizeof(T) * static_cast<size_t>(count),
                                    cudaMemcpyHostToDevice, stream));
    else
        AB_CUDA_TRY(cudaMemsetAsync(*block, 0, bytes, stream));
    return ab_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

// Numbers the chunks of the targets and copies both lists to the device.
static ab_status send_lists(ab_resident *r, update_target *targets) {
    int chunks = 0;
    for (int i = 0; i < r->config.items; i++) {
        targets[i].chunks = static_cast<int>((targets[i].count + CHUNK - 1) / CHUNK);
        targets[i].first_chunk = chunks;
        chunks += targets[i].chunks;
    }
    chunk *list = static_cast<chunk *>(calloc(static_cast<size_t>(chunks) + 1, sizeof *list));
    if (!list) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    for (int i = 0; i < r->config.items; i++)
        for (int64_t first = 0; first < targets[i].count; first += CHUNK) list[r->chunks++] = {i, first};
    ab_status status = on_device(&r->target, targets, r->config.items);
    if (status == AB_OK) status = on_device(&r->list, list, r->chunks);
    free(list);
    return status;
}

static ab_status make_lists(ab_resident *r, update_target *targets) {
    for (int i = 0; i < r->config.items; i++) {
        targets[i] = target_of(&r->config, i);
        if (!all_known(targets[i])) return ab_fail(AB_UNAVAILABLE, "no CUDA kernel for this number format");
    }
    return send_lists(r, targets);
}

static ab_status fill(ab_resident *r) {
    update_target *targets =
        static_cast<update_target *>(calloc(static_cast<size_t>(r->config.items) + 1, sizeof *targets));
    size_t window = static_cast<size_t>(r->config.window);
    r->event = static_cast<cudaEvent_t *>(calloc(window + 1, sizeof *r->event));
    ab_status status = targets && r->event ? AB_OK : ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    if (status == AB_OK) status = make_lists(r, targets);
    free(targets);
    AB_TRY(status);
    AB_TRY(on_device(&r->state, static_cast<const ab_step_state *>(nullptr), 1));
    AB_TRY(
        on_device(&r->row, static_cast<const ab_update_row *>(nullptr), r->config.window * r->config.groups));
    AB_TRY(on_device(&r->item_row, static_cast<const ab_update_row *>(nullptr), r->config.items));
    AB_TRY(on_device(&r->sums, static_cast<const double *>(nullptr), 2 * r->chunks));
    AB_TRY(on_device(&r->norm, static_cast<const double *>(nullptr), r->config.items));
    AB_TRY(on_device(&r->row_base, static_cast<const int64_t *>(nullptr), 1));
    AB_CUDA_TRY(cudaMallocHost(&r->records, window * sizeof *r->records));
    for (size_t i = 0; i <= window; i++) AB_CUDA_TRY(cudaEventCreate(&r->event[i]));
    return AB_OK;
}

static ab_status resident_create(const ab_resident_config *config, ab_resident **resident) {
    AB_TRY(ab_cuda_start());
    ab_resident *r = static_cast<ab_resident *>(calloc(1, sizeof *r));
    if (!r) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    r->config = *config;
    ab_status status = fill(r);
    if (status == AB_OK)
        *resident = r;
    else
        resident_destroy(r);
    return status;
}

// ---- steps --------------------------------------------------------------------------------------

static ab_status resident_set(ab_resident *r, const ab_step_state *state, const ab_update_row *row) {
    cudaStream_t stream = ab_cuda_context()->stream;
    r->collected = state->step;
    AB_CUDA_TRY(cudaMemcpyAsync(r->state, state, sizeof *state, cudaMemcpyHostToDevice, stream));
    AB_CUDA_TRY(
        cudaMemcpyAsync(r->row_base, &state->taken, sizeof state->taken, cudaMemcpyHostToDevice, stream));
    AB_CUDA_TRY(cudaMemcpyAsync(r->row, row,
                                static_cast<size_t>(r->config.window * r->config.groups) * sizeof *row,
                                cudaMemcpyHostToDevice, stream));
    return ab_cuda_check(cudaStreamSynchronize(stream),
                         "cudaStreamSynchronize"); // the sources are owned by the caller
}

static const int64_t *resident_counter(ab_resident *r) { return &r->state->batches; }

static ab_status resident_begin(ab_resident *r) {
    AB_CUDA_LAUNCH(begin_step, 1, 1, 0, ab_cuda_context()->stream, r->state,
                   ab_cuda_span(r->config.loss_grad), r->config.batches);
    return ab_cuda_launched("begin_step");
}

static ab_status resident_batch(ab_resident *r) {
    AB_CUDA_LAUNCH(end_batch, 1, 1, 0, ab_cuda_context()->stream, r->state, ab_cuda_span(r->config.loss));
    return ab_cuda_launched("end_batch");
}

// fp32 if any gradient is fp32.
static int common_type(const ab_resident_config *config) {
    int type = ab_cuda_type(config->update[0].grad->format);
    for (int i = 1; i < config->items; i++)
        if (ab_cuda_type(config->update[i].grad->format) != type) return AB_ELEMENT_F32;
    return type;
}

// type: common element type of the gradients.
static ab_status clip(ab_resident *r, int type) {
    const ab_resident_config *config = &r->config;
    cudaStream_t stream = ab_cuda_context()->stream;
    unsigned blocks = static_cast<unsigned>(r->chunks), items = static_cast<unsigned>(config->items);
    float limit = config->clip_value > 0 ? static_cast<float>(config->clip_value) : INFINITY;
    if (config->clip_norm <= 0 && config->clip_value <= 0) return AB_OK;
    if (config->clip_norm > 0) {
        AB_CUDA_LAUNCH(square_chunks, blocks, AB_CUDA_THREADS, 0, stream, r->list, r->target, r->sums);
        AB_TRY(ab_cuda_launched("clip_squares"));
        AB_CUDA_LAUNCH(item_norms, items, ITEM_THREADS, 0, stream, r->target, r->sums, r->norm);
        AB_TRY(ab_cuda_launched("clip_norms"));
        AB_CUDA_LAUNCH(clip_norm, 1, 1, 0, stream, r->norm, config->items, config->clip_norm, type, r->state);
        AB_TRY(ab_cuda_launched("clip_norm"));
    }
    AB_CUDA_LAUNCH(limit_chunks, blocks, AB_CUDA_THREADS, 0, stream, r->list, r->target, r->state, limit);
    return ab_cuda_launched("clip");
}

// ---- clipping of a step that the host decides ---------------------------------------------------

// fp32 if any gradient is fp32; AB_ELEMENT_NONE if one has no element type.
static int common_type_of(ab_tensor *const *grad, int count) {
    int type = ab_cuda_type(grad[0]->format);
    for (int i = 1; i < count; i++) {
        const int other = ab_cuda_type(grad[i]->format);
        if (type == AB_ELEMENT_NONE || other == AB_ELEMENT_NONE) return AB_ELEMENT_NONE;
        if (other != type) type = AB_ELEMENT_F32;
    }
    return type;
}

static ab_status clip_lists(ab_resident *r, ab_tensor *const *grad, update_target *targets, double *total) {
    ab_step_state state = {};
    state.clip_factor = 1.0f;
    for (int i = 0; i < r->config.items; i++) {
        targets[i].grad = ab_cuda_span(grad[i]);
        targets[i].count = ab_cuda_count(grad[i]);
    }
    AB_TRY(send_lists(r, targets));
    AB_TRY(on_device(&r->state, &state, 1));
    AB_TRY(on_device(&r->sums, static_cast<const double *>(nullptr), r->chunks));
    AB_TRY(on_device(&r->norm, static_cast<const double *>(nullptr), r->config.items));
    if (r->chunks > 0) AB_TRY(clip(r, common_type_of(grad, r->config.items)));
    cudaStream_t stream = ab_cuda_context()->stream;
    AB_CUDA_TRY(cudaMemcpyAsync(&state, r->state, sizeof state, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    *total = state.grad_norm;
    return AB_OK;
}

ab_status ab_cuda_clip(ab_tensor *const *grad, int count, double norm, double value, double *total) {
    *total = 0;
    if (count == 0) return AB_OK;
    if (common_type_of(grad, count) == AB_ELEMENT_NONE)
        return ab_fail(AB_UNAVAILABLE, "no CUDA kernel for this number format");
    ab_resident *r = static_cast<ab_resident *>(calloc(1, sizeof *r));
    update_target *targets =
        static_cast<update_target *>(calloc(static_cast<size_t>(count), sizeof *targets));
    ab_status status = r && targets ? AB_OK : ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    if (status == AB_OK) {
        r->config.items = count;
        r->config.clip_norm = norm;
        r->config.clip_value = value;
        status = clip_lists(r, grad, targets, total);
    }
    free(targets);
    resident_destroy(r);
    return status;
}

// ---- steps, continued ---------------------------------------------------------------------------

static ab_status update_all(ab_resident *r) {
    cudaStream_t stream = ab_cuda_context()->stream;
    const ab_resident_config *config = &r->config;
    unsigned blocks = static_cast<unsigned>(r->chunks), items = static_cast<unsigned>(config->items);
    rows_now now = {r->row, r->item_row, r->row_base, r->state, config->groups, config->update_kind};
    if (ab_f_needs_norms(config->update_kind)) {
        AB_CUDA_LAUNCH(measure_chunks, blocks, AB_CUDA_THREADS, 0, stream, r->list, r->target, now, r->sums);
        AB_TRY(ab_cuda_launched("update_measure"));
        AB_CUDA_LAUNCH(item_trust, items, ITEM_THREADS, 0, stream, r->target, now, r->sums, r->chunks,
                       r->item_row);
        AB_TRY(ab_cuda_launched("update_trust"));
    }
    AB_CUDA_LAUNCH(update_chunks, blocks, AB_CUDA_THREADS, 0, stream, r->list, r->target, now,
                   static_cast<float>(1.0 - config->ema_decay));
    return ab_cuda_launched("update");
}

static ab_status resident_finish(ab_resident *r) {
    cudaStream_t stream = ab_cuda_context()->stream;
    unsigned blocks = static_cast<unsigned>(r->chunks);
    if (blocks > 0 && !r->config.leave_gradients) {
        AB_CUDA_LAUNCH(unscale_chunks, blocks, AB_CUDA_THREADS, 0, stream, r->list, r->target, r->state);
        AB_TRY(ab_cuda_launched("unscale"));
    }
    if (blocks > 0) AB_TRY(clip(r, common_type(&r->config)));
    AB_CUDA_LAUNCH(decide_step, 1, 1, 0, stream, r->config.rule, r->state, ab_cuda_span(r->config.loss),
                   r->config.batches, r->records, r->config.window);
    AB_TRY(ab_cuda_launched("decide"));
    return blocks > 0 ? update_all(r) : AB_OK;
}

// In a graph the event is recorded at every launch, for the host to read.
static ab_status resident_mark(ab_resident *r, int place) {
    ab_cuda *cuda = ab_cuda_context();
    return ab_cuda_check(
        cudaEventRecordWithFlags(r->event[place], cuda->stream,
                                 cuda->capturing ? cudaEventRecordExternal : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
}

static ab_status resident_collect(ab_resident *r, int steps, ab_step_record *record, int64_t *time_ns,
                                  ab_step_state *state) {
    cudaStream_t stream = ab_cuda_context()->stream;
    AB_CUDA_TRY(cudaMemcpyAsync(state, r->state, sizeof *state, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    if (state->step != r->collected + steps)
        return ab_fail(AB_INTERNAL, "cuda: %lld steps were launched, the device counts %lld",
                       static_cast<long long>(r->collected + steps), static_cast<long long>(state->step));
    for (int i = 0; i < steps; i++) {
        float ms = 0.0f;
        record[i] = r->records[(r->collected + i) % r->config.window];
        AB_CUDA_TRY(cudaEventElapsedTime(&ms, r->event[i], r->event[i + 1]));
        time_ns[i] = static_cast<int64_t>(static_cast<double>(ms) * 1e6);
    }
    r->collected += steps;
    return AB_OK;
}

// ---- graphs -------------------------------------------------------------------------------------

struct ab_graph {
    cudaGraphExec_t exec;
};

static ab_status record_begin() {
    ab_cuda *cuda = ab_cuda_context();
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaStreamSynchronize(cuda->stream));
    AB_CUDA_TRY(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal));
    cuda->capturing = true;
    return AB_OK;
}

static ab_status record_end(ab_graph **graph) {
    ab_cuda *cuda = ab_cuda_context();
    cudaGraph_t recorded = nullptr;
    *graph = nullptr;
    cuda->capturing = false;
    AB_CUDA_TRY(cudaStreamEndCapture(cuda->stream, &recorded));
    ab_graph *g = static_cast<ab_graph *>(calloc(1, sizeof *g));
    ab_status status = g ? ab_cuda_check(cudaGraphInstantiate(&g->exec, recorded, 0), "cudaGraphInstantiate")
                         : ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    (void)cudaGraphDestroy(recorded);
    if (status == AB_OK)
        *graph = g;
    else
        free(g);
    return status;
}

static ab_status graph_launch(ab_graph *graph) {
    return ab_cuda_check(cudaGraphLaunch(graph->exec, ab_cuda_context()->stream), "cudaGraphLaunch");
}

static void graph_destroy(ab_graph *graph) {
    if (!graph) return;
    (void)cudaStreamSynchronize(ab_cuda_context()->stream);
    (void)cudaGraphExecDestroy(graph->exec);
    free(graph);
}

// ---- batches ------------------------------------------------------------------------------------

namespace {
struct stage_slot {
    void *host[2], *room[2]; // per tensor; host memory is pinned, room is owned by the caller
    cudaEvent_t sent, taken; // transfer to room complete; room free for reuse
};
} // namespace

struct ab_stage {
    size_t bytes[2];
    int slots;
    stage_slot slot[AB_STAGE_SLOTS];
};

static void stage_destroy(ab_stage *stage) {
    if (!stage) return;
    (void)cudaStreamSynchronize(ab_cuda_context()->copies);
    (void)cudaStreamSynchronize(ab_cuda_context()->stream);
    for (int s = 0; s < stage->slots; s++) {
        stage_slot *slot = &stage->slot[s];
        for (void *host : slot->host) (void)cudaFreeHost(host);
        if (slot->sent) (void)cudaEventDestroy(slot->sent);
        if (slot->taken) (void)cudaEventDestroy(slot->taken);
    }
    free(stage);
    (void)cudaGetLastError();
}

static ab_status slot_fill(stage_slot *slot, void *const room[2], const size_t bytes[2]) {
    AB_CUDA_TRY(cudaEventCreateWithFlags(&slot->sent, cudaEventDisableTiming));
    AB_CUDA_TRY(cudaEventCreateWithFlags(&slot->taken, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        slot->room[i] = room[i];
        AB_CUDA_TRY(cudaMallocHost(&slot->host[i], bytes[i] ? bytes[i] : 1));
    }
    return AB_OK;
}

static ab_status stage_create(const size_t bytes[2], void *const (*room)[2], int slots, ab_stage **result) {
    AB_TRY(ab_cuda_start());
    if (slots > AB_STAGE_SLOTS) return ab_fail(AB_INTERNAL, "cuda: %d slots for batches", slots);
    ab_stage *stage = static_cast<ab_stage *>(calloc(1, sizeof *stage));
    if (!stage) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    memcpy(stage->bytes, bytes, sizeof stage->bytes);
    stage->slots = slots;
    ab_status status = AB_OK;
    for (int s = 0; s < slots && status == AB_OK; s++) status = slot_fill(&stage->slot[s], room[s], bytes);
    if (status == AB_OK)
        *result = stage;
    else
        stage_destroy(stage);
    return status;
}

// An event that was never recorded counts as complete: the first use of a slot does not wait.
static ab_status stage_buffers(ab_stage *stage, int slot, void *buffer[2]) {
    AB_CUDA_TRY(cudaEventSynchronize(stage->slot[slot].sent));
    for (int i = 0; i < 2; i++) buffer[i] = stage->slot[slot].host[i];
    return AB_OK;
}

static ab_status stage_send(ab_stage *stage, int slot) {
    ab_cuda *cuda = ab_cuda_context();
    stage_slot *s = &stage->slot[slot];
    AB_CUDA_TRY(cudaStreamWaitEvent(cuda->copies, s->taken, 0));
    for (int i = 0; i < 2; i++)
        AB_CUDA_TRY(
            cudaMemcpyAsync(s->room[i], s->host[i], stage->bytes[i], cudaMemcpyHostToDevice, cuda->copies));
    AB_CUDA_TRY(cudaEventRecord(s->sent, cuda->copies));
    return ab_cuda_check(cudaStreamWaitEvent(cuda->stream, s->sent, 0), "cudaStreamWaitEvent");
}

static ab_status stage_use(ab_stage *stage, int slot, void *const to[2]) {
    ab_cuda *cuda = ab_cuda_context();
    for (int i = 0; i < 2; i++)
        AB_CUDA_TRY(cudaMemcpyAsync(to[i], stage->slot[slot].room[i], stage->bytes[i],
                                    cudaMemcpyDeviceToDevice, cuda->stream));
    return AB_OK;
}

static ab_status stage_done(ab_stage *stage, int slot) {
    return ab_cuda_check(cudaEventRecord(stage->slot[slot].taken, ab_cuda_context()->stream),
                         "cudaEventRecord");
}

extern const ab_resident_ops ab_cuda_resident;
const ab_resident_ops ab_cuda_resident = {
    resident_create, resident_destroy, resident_set,  resident_counter, resident_begin,
    resident_batch,  resident_finish,  resident_mark, resident_collect, record_begin,
    record_end,      graph_launch,     graph_destroy, stage_create,     stage_destroy,
    stage_buffers,   stage_send,       stage_use,     stage_done};
