// Steps that the GPU decides itself: scale, overflow, skip and the number of updates are device values; the host launches whole
// windows of steps and reads what happened afterwards. Also graphs, which replay a step that was recorded once, and batches that
// are sent by a second stream while the step before them runs.
#include "kernels/cuda_ops.cuh"

#include <cstdlib>
#include <cstring>

// A block handles CHUNK elements of one parameter.
enum { CHUNK = 4096 };

struct update_target {
    ab_span scaled, grad, weight, state[AB_UPDATE_MAX_STATES], model; // data null where there is none
    int64_t count;
};

struct chunk {
    int target;
    int64_t first;
};

struct ab_resident {
    ab_resident_config config;
    int chunks;
    update_target *target; // on the device, as all pointers up to `records`
    chunk *list;
    ab_step_state *state;
    ab_update_row *row;
    int64_t *row_base;       // taken when the rows were set
    ab_step_record *records; // pinned host memory that the device writes
    cudaEvent_t *event;      // window + 1
    int64_t collected;       // steps the host knows of
};

// ---- kernels -------------------------------------------------------------------------------------------------

__global__ static void begin_step(ab_step_state *state, ab_span loss_grad) {
    state->found = 0;
    state->skip = 0;
    ab_store(loss_grad.data, loss_grad.type, 0, static_cast<float>(state->scale));
}

__global__ static void unscale_chunks(const chunk *list, const update_target *targets, ab_step_state *state) {
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    int64_t end = c.first + CHUNK < t.count ? c.first + CHUNK : t.count;
    float inverse = static_cast<float>(1.0 / state->scale);
    int found = 0;
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        float x = ab_span_at(t.scaled, i);
        found |= !ab_f_finite(x);
        ab_store(t.grad.data, t.grad.type, i, x * inverse);
    }
    if (__syncthreads_or(found) && threadIdx.x == 0) state->found = 1; // all write the same
}

// One thread. The record is of the step that ends; the state, of the next one.
__global__ static void decide_step(ab_scale_rule rule, ab_step_state *state, ab_span loss,
                                   ab_step_record *records, int window) {
    ab_step_record r;
    r.scale = state->scale;
    r.loss = ab_span_at(loss, 0);
    r.overflow = rule.dynamic && state->found;
    int place = static_cast<int>(state->step % window);
    ab_step_decide(&rule, state);
    r.skipped = state->skip;
    records[place] = r;
}

__global__ static void update_chunks(const chunk *list, const update_target *targets,
                                     const ab_step_state *state, const ab_update_row *rows,
                                     const int64_t *row_base, int kind) {
    if (state->skip) return;
    const chunk c = list[blockIdx.x];
    const update_target t = targets[c.target];
    const ab_update_row row = rows[state->taken - *row_base - 1];
    int64_t end = c.first + CHUNK < t.count ? c.first + CHUNK : t.count;
    for (int64_t i = c.first + threadIdx.x; i < end; i += blockDim.x) {
        float held[AB_UPDATE_MAX_STATES], weight = ab_span_at(t.weight, i);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
            held[k] = t.state[k].data ? ab_span_at(t.state[k], i) : 0.0f;
        ab_f_update(kind, row.value, ab_span_at(t.grad, i), &weight, held);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
            if (t.state[k].data) ab_store(t.state[k].data, t.state[k].type, i, held[k]);
        ab_store(t.weight.data, t.weight.type, i, weight);
        if (t.model.data) ab_store(t.model.data, t.model.type, i, weight);
    }
}

// ---- life ----------------------------------------------------------------------------------------------------

static void resident_destroy(ab_resident *r) {
    if (!r) return;
    (void)cudaStreamSynchronize(ab_cuda_get()->stream);
    (void)cudaFree(r->target);
    (void)cudaFree(r->list);
    (void)cudaFree(r->state);
    (void)cudaFree(r->row);
    (void)cudaFree(r->row_base);
    (void)cudaFreeHost(r->records);
    for (int i = 0; r->event && i <= r->config.window; i++)
        if (r->event[i]) (void)cudaEventDestroy(r->event[i]);
    free(r->event);
    free(r);
    (void)cudaGetLastError();
}

static ab_span span_or_nothing(const ab_tensor *tensor) {
    return tensor ? ab_cuda_span(tensor) : ab_cuda_span_of(nullptr, AB_ELEMENT_F32);
}

static update_target target_of(const ab_resident_config *config, int i) {
    const ab_update_item *update = &config->update[i];
    update_target t;
    t.scaled = ab_cuda_span(config->unscale[i].from);
    t.grad = ab_cuda_span(update->grad);
    t.weight = ab_cuda_span(update->weight);
    t.model = span_or_nothing(update->model);
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++) t.state[k] = span_or_nothing(update->state[k]);
    t.count = ab_cuda_count(update->weight);
    return t;
}

static bool all_known(const update_target &t) {
    bool known = t.scaled.type != AB_ELEMENT_NONE && t.grad.type != AB_ELEMENT_NONE &&
                 t.weight.type != AB_ELEMENT_NONE && t.model.type != AB_ELEMENT_NONE;
    for (const ab_span &state : t.state) known = known && state.type != AB_ELEMENT_NONE;
    return known;
}

// Through the stream, which does not wait for the default one, and done when it returns: the source is the caller's.
template <typename T> static ab_status on_device(T **block, const T *values, int count) {
    cudaStream_t stream = ab_cuda_get()->stream;
    size_t bytes = sizeof(T) * static_cast<size_t>(count > 0 ? count : 1);
    AB_CUDA_TRY(cudaMalloc(block, bytes));
    if (values && count > 0)
        AB_CUDA_TRY(cudaMemcpyAsync(*block, values, sizeof(T) * static_cast<size_t>(count),
                                    cudaMemcpyHostToDevice, stream));
    else
        AB_CUDA_TRY(cudaMemsetAsync(*block, 0, bytes, stream));
    return ab_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static ab_status make_lists(ab_resident *r, update_target *targets) {
    int chunks = 0;
    for (int i = 0; i < r->config.items; i++) {
        targets[i] = target_of(&r->config, i);
        if (!all_known(targets[i])) return ab_fail(AB_UNAVAILABLE, "no CUDA kernel for this number format");
        chunks += static_cast<int>((targets[i].count + CHUNK - 1) / CHUNK);
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
    AB_TRY(on_device(&r->row, static_cast<const ab_update_row *>(nullptr), r->config.window));
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

// ---- steps ---------------------------------------------------------------------------------------------------

static ab_status resident_set(ab_resident *r, const ab_step_state *state, const ab_update_row *row) {
    cudaStream_t stream = ab_cuda_get()->stream;
    r->collected = state->step;
    AB_CUDA_TRY(cudaMemcpyAsync(r->state, state, sizeof *state, cudaMemcpyHostToDevice, stream));
    AB_CUDA_TRY(
        cudaMemcpyAsync(r->row_base, &state->taken, sizeof state->taken, cudaMemcpyHostToDevice, stream));
    AB_CUDA_TRY(cudaMemcpyAsync(r->row, row, static_cast<size_t>(r->config.window) * sizeof *row,
                                cudaMemcpyHostToDevice, stream));
    return ab_cuda_check(cudaStreamSynchronize(stream),
                         "cudaStreamSynchronize"); // the sources are the caller's
}

static ab_status resident_begin(ab_resident *r) {
    begin_step<<<1, 1, 0, ab_cuda_get()->stream>>>(r->state, ab_cuda_span(r->config.loss_grad));
    return ab_cuda_launched("begin_step");
}

static ab_status resident_finish(ab_resident *r) {
    cudaStream_t stream = ab_cuda_get()->stream;
    unsigned blocks = static_cast<unsigned>(r->chunks);
    if (blocks > 0 && !r->config.leave_gradients) {
        unscale_chunks<<<blocks, AB_CUDA_THREADS, 0, stream>>>(r->list, r->target, r->state);
        AB_TRY(ab_cuda_launched("unscale"));
    }
    decide_step<<<1, 1, 0, stream>>>(r->config.rule, r->state, ab_cuda_span(r->config.loss), r->records,
                                     r->config.window);
    AB_TRY(ab_cuda_launched("decide"));
    if (blocks == 0) return AB_OK;
    update_chunks<<<blocks, AB_CUDA_THREADS, 0, stream>>>(r->list, r->target, r->state, r->row, r->row_base,
                                                          r->config.update_kind);
    return ab_cuda_launched("update");
}

static ab_status resident_mark(ab_resident *r, int place) {
    return ab_cuda_check(cudaEventRecord(r->event[place], ab_cuda_get()->stream), "cudaEventRecord");
}

static ab_status resident_collect(ab_resident *r, int steps, ab_step_record *record, int64_t *time_ns,
                                  ab_step_state *state) {
    cudaStream_t stream = ab_cuda_get()->stream;
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

// ---- graphs --------------------------------------------------------------------------------------------------

struct ab_graph {
    cudaGraphExec_t exec;
};

static ab_status record_begin() {
    ab_cuda *cuda = ab_cuda_get();
    AB_TRY(ab_cuda_start());
    AB_CUDA_TRY(cudaStreamSynchronize(cuda->stream));
    AB_CUDA_TRY(cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal));
    cuda->capturing = true;
    return AB_OK;
}

static ab_status record_end(ab_graph **graph) {
    ab_cuda *cuda = ab_cuda_get();
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
    return ab_cuda_check(cudaGraphLaunch(graph->exec, ab_cuda_get()->stream), "cudaGraphLaunch");
}

static void graph_destroy(ab_graph *graph) {
    if (!graph) return;
    (void)cudaStreamSynchronize(ab_cuda_get()->stream);
    (void)cudaGraphExecDestroy(graph->exec);
    free(graph);
}

// ---- batches -------------------------------------------------------------------------------------------------

struct ab_stage {
    size_t bytes[2];
    void *host[2][2], *room[2][2]; // [slot][tensor]; host memory is pinned, room is the caller's
    cudaEvent_t sent[2], taken[2]; // by slot: it is in its room; its room is free again
    int slot;
};

static void stage_destroy(ab_stage *stage) {
    if (!stage) return;
    (void)cudaStreamSynchronize(ab_cuda_get()->copies);
    (void)cudaStreamSynchronize(ab_cuda_get()->stream);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 2; i++) (void)cudaFreeHost(stage->host[s][i]);
        if (stage->sent[s]) (void)cudaEventDestroy(stage->sent[s]);
        if (stage->taken[s]) (void)cudaEventDestroy(stage->taken[s]);
    }
    free(stage);
    (void)cudaGetLastError();
}

static ab_status stage_fill(ab_stage *stage, void *const room[2][2]) {
    for (int s = 0; s < 2; s++) {
        AB_CUDA_TRY(cudaEventCreateWithFlags(&stage->sent[s], cudaEventDisableTiming));
        AB_CUDA_TRY(cudaEventCreateWithFlags(&stage->taken[s], cudaEventDisableTiming));
        for (int i = 0; i < 2; i++) {
            stage->room[s][i] = room[s][i];
            AB_CUDA_TRY(cudaMallocHost(&stage->host[s][i], stage->bytes[i] ? stage->bytes[i] : 1));
        }
    }
    return AB_OK;
}

static ab_status stage_create(const size_t bytes[2], void *const room[2][2], ab_stage **result) {
    AB_TRY(ab_cuda_start());
    ab_stage *stage = static_cast<ab_stage *>(calloc(1, sizeof *stage));
    if (!stage) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    memcpy(stage->bytes, bytes, sizeof stage->bytes);
    ab_status status = stage_fill(stage, room);
    if (status == AB_OK)
        *result = stage;
    else
        stage_destroy(stage);
    return status;
}

// An event that was never recorded is over: the first two batches do not wait.
static ab_status stage_buffers(ab_stage *stage, void *buffer[2]) {
    AB_CUDA_TRY(cudaEventSynchronize(stage->sent[stage->slot]));
    for (int i = 0; i < 2; i++) buffer[i] = stage->host[stage->slot][i];
    return AB_OK;
}

static ab_status stage_send(ab_stage *stage, void *const to[2]) {
    ab_cuda *cuda = ab_cuda_get();
    int s = stage->slot;
    AB_CUDA_TRY(cudaStreamWaitEvent(cuda->copies, stage->taken[s], 0));
    for (int i = 0; i < 2; i++)
        AB_CUDA_TRY(cudaMemcpyAsync(stage->room[s][i], stage->host[s][i], stage->bytes[i],
                                    cudaMemcpyHostToDevice, cuda->copies));
    AB_CUDA_TRY(cudaEventRecord(stage->sent[s], cuda->copies));
    AB_CUDA_TRY(cudaStreamWaitEvent(cuda->stream, stage->sent[s], 0));
    for (int i = 0; i < 2; i++)
        AB_CUDA_TRY(cudaMemcpyAsync(to[i], stage->room[s][i], stage->bytes[i], cudaMemcpyDeviceToDevice,
                                    cuda->stream));
    AB_CUDA_TRY(cudaEventRecord(stage->taken[s], cuda->stream));
    stage->slot = 1 - s;
    return AB_OK;
}

extern const ab_resident_ops ab_cuda_resident;
const ab_resident_ops ab_cuda_resident = {resident_create, resident_destroy, resident_set,     resident_begin,
                                          resident_finish, resident_mark,    resident_collect, record_begin,
                                          record_end,      graph_launch,     graph_destroy,    stage_create,
                                          stage_destroy,   stage_buffers,    stage_send};
