// Counting another program's tensors (shown.h): all tensors of a call in two kernels and one copy to pinned
// memory, on that program's stream. Of the plugin's own context (kernels/core/cuda.cuh) nothing is used or
// started: no stream, no library handle.
#include "kernels/census/census.cuh"
#include "kernels/census/shown.h"

#include <pthread.h>

#include <cstdlib>

enum { PICK_THREADS = 128, LEAST_ROOM = 1 << 16 };

namespace {
// A tensor on the device. Its blocks of threads: first those of the census, then those of the finite check.
struct shown_tensor {
    const void *data;
    int64_t count, stride, every, turn;
    int64_t counted; // values of the census
    int64_t first_block, census_blocks;
    int type;
};

// Results of a tensor.
struct shown_table {
    device_census census;
    unsigned long long nonfinite;
};

// Runs on one GPU while it exists. The program may be recording another stream as a graph: then calls that
// wait or allocate are refused, and end the recording, unless the thread says that it knows.
struct on_device {
    int before = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t code;
    explicit on_device(int device) {
        code = cudaThreadExchangeStreamCaptureMode(&mode);
        if (code == cudaSuccess) code = cudaGetDevice(&before);
        if (code == cudaSuccess && device != before) code = cudaSetDevice(device);
    }
    ~on_device() {
        (void)cudaSetDevice(before);
        (void)cudaThreadExchangeStreamCaptureMode(&mode);
    }
};
} // namespace

struct ab_shown {
    int device, count;
    int64_t room;       // bytes of both memories
    char *here, *there; // pinned; on the device
    cudaEvent_t begun, done;
    const shown_table *table; // in `here`
    const ab_shown_ask *ask;  // own copy
    int asks;                 // room of it
    ab_shown *next;           // in the list of those that are free
};

// ---- kernels ------------------------------------------------------------------------------------

// Element i, as fp32; its place in memory may be before `data`.
__device__ static float value_at(const shown_tensor &t, int64_t i) {
    if (t.type == AB_SHOWN_F64) return static_cast<float>(static_cast<const double *>(t.data)[i * t.stride]);
    const int64_t at = i * t.stride;
    if (t.type == AB_SHOWN_F32) return static_cast<const float *>(t.data)[at];
    const uint16_t code = static_cast<const uint16_t *>(t.data)[at];
    return t.type == AB_SHOWN_F16 ? ab_f16_value(code) : ab_bf16_value(code);
}

__device__ static bool is_finite_at(const shown_tensor &t, int64_t i) {
    if (t.type != AB_SHOWN_F64) return ab_f_finite(value_at(t, i));
    const double x = static_cast<const double *>(t.data)[i * t.stride];
    return x - x == 0.0;
}

// The element that is value k of a census.
__device__ static int64_t element_of(const shown_tensor &t, int64_t k) {
    return ((k / AB_CENSUS_BLOCK) * t.every + t.turn) * AB_CENSUS_BLOCK + k % AB_CENSUS_BLOCK;
}

// Whether a census may read eight values at a time: `ab_span` knows the other types by the same numbers.
__device__ static bool is_plain(const shown_tensor &t) {
    return t.every == 1 && t.stride == 1 && t.type != AB_SHOWN_F64;
}

// The tensor that block b belongs to.
__device__ static int tensor_of(const shown_tensor *list, int count, int64_t b) {
    int low = 0, high = count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (list[middle].first_block <= b)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

__device__ static void count_census(const shown_tensor &t, int64_t first, counter *bin, counter *other,
                                    own_counts *own) {
    const int64_t end = first + CHUNK < t.counted ? first + CHUNK : t.counted;
    if (is_plain(t)) {
        ab_span values = {const_cast<void *>(t.data), t.type};
        count_range(values, reinterpret_cast<uintptr_t>(t.data) % 16 == 0, first, end, bin, other, own);
        return;
    }
    for (int64_t k = first + threadIdx.x; k < end; k += CENSUS_THREADS)
        count_one(value_at(t, element_of(t, k)), bin, other, own);
}

__device__ static void count_nonfinite(const shown_tensor &t, int64_t first, unsigned long long *to) {
    const int64_t end = first + CHUNK < t.count ? first + CHUNK : t.count;
    unsigned found = 0;
    for (int64_t i = first + threadIdx.x; i < end; i += CENSUS_THREADS) found += !is_finite_at(t, i);
    if (found) atomicAdd(to, static_cast<unsigned long long>(found));
}

__global__ static void count_shown(const shown_tensor *list, int count, shown_table *table, double *squares) {
    __shared__ counter bin[BINS], other[OTHERS];
    const int which = tensor_of(list, count, blockIdx.x);
    const shown_tensor t = list[which];
    const int64_t part = static_cast<int64_t>(blockIdx.x) - t.first_block;
    if (part >= t.census_blocks) {
        count_nonfinite(t, (part - t.census_blocks) * CHUNK, &table[which].nonfinite);
        return;
    }
    own_counts own = {0, 0, 0.0};
    clear_counters(bin, other);
    count_census(t, part * CHUNK, bin, other, &own);
    const double sum = hand_over(bin, other, own, &table[which].census);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// One block per tensor.
__global__ static void join_shown(const shown_tensor *list, shown_table *table, const double *squares) {
    const shown_tensor t = list[blockIdx.x];
    add_squares(squares + t.first_block, t.census_blocks, &table[blockIdx.x].census);
}

__global__ static void pick_shown(shown_tensor t, int64_t first, int64_t step, int64_t n, float *to) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * PICK_THREADS + threadIdx.x;
    if (i < n) to[i] = value_at(t, first + i * step);
}

// ---- memory -------------------------------------------------------------------------------------

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ab_shown *unused;

// One with enough room, or any, or NULL.
static ab_shown *take_unused(int device, int64_t room) {
    ab_shown *found = nullptr;
    pthread_mutex_lock(&lock);
    for (ab_shown *s = unused; s; s = s->next)
        if (s->device == device && (!found || (found->room < room && s->room > found->room))) found = s;
    for (ab_shown **at = &unused; found && *at; at = &(*at)->next)
        if (*at == found) {
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_back(ab_shown *shown) {
    pthread_mutex_lock(&lock);
    shown->next = unused;
    unused = shown;
    pthread_mutex_unlock(&lock);
}

static ab_status make_events(ab_shown *shown) {
    if (!shown->begun) AB_CUDA_TRY(cudaEventCreate(&shown->begun));
    if (!shown->done) AB_CUDA_TRY(cudaEventCreate(&shown->done));
    return AB_OK;
}

static ab_status make_room(ab_shown *shown, int64_t bytes) {
    int64_t room = LEAST_ROOM;
    while (room < bytes) room *= 2;
    AB_TRY(make_events(shown));
    if (shown->room >= bytes) return AB_OK;
    shown->room = 0;
    if (shown->here) AB_CUDA_TRY(cudaFreeHost(shown->here));
    shown->here = nullptr;
    if (shown->there) AB_CUDA_TRY(cudaFree(shown->there));
    shown->there = nullptr;
    AB_CUDA_TRY(cudaMallocHost(&shown->here, static_cast<size_t>(room)));
    AB_CUDA_TRY(cudaMalloc(&shown->there, static_cast<size_t>(room)));
    shown->room = room;
    return AB_OK;
}

static ab_status keep_asks(ab_shown *shown, const ab_shown_ask *ask, int count) {
    if (shown->asks < count) {
        void *list =
            realloc(const_cast<ab_shown_ask *>(shown->ask), static_cast<size_t>(count) * sizeof *ask);
        if (!list) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
        shown->ask = static_cast<ab_shown_ask *>(list);
        shown->asks = count;
    }
    memcpy(const_cast<ab_shown_ask *>(shown->ask), ask, static_cast<size_t>(count) * sizeof *ask);
    shown->count = count;
    return AB_OK;
}

static ab_status find_shown(int device, const ab_shown_ask *ask, int count, int64_t bytes, ab_shown **shown) {
    ab_shown *s = take_unused(device, bytes);
    if (!s) s = static_cast<ab_shown *>(calloc(1, sizeof *s));
    if (!s) return ab_fail(AB_NO_MEMORY, "cuda: out of memory");
    s->device = device;
    ab_status status = make_room(s, bytes);
    if (status == AB_OK) status = keep_asks(s, ask, count);
    if (status == AB_OK)
        *shown = s;
    else
        give_back(s);
    return status;
}

// ---- a call -------------------------------------------------------------------------------------

static int64_t chunks_of(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

static shown_tensor tensor_from(const ab_shown_ask &a, int64_t first_block) {
    const int64_t counted = ab_shown_counted(&a);
    return {a.data, a.count, a.stride, a.every, a.turn, counted, first_block, chunks_of(counted), a.type};
}

// Fills the list, if there is one; the number of blocks.
static int64_t lay_out(const ab_shown_ask *ask, int count, shown_tensor *list) {
    int64_t blocks = 0;
    for (int i = 0; i < count; i++) {
        const shown_tensor t = tensor_from(ask[i], blocks);
        if (list) list[i] = t;
        blocks += t.census_blocks + (ask[i].all ? chunks_of(t.count) : 0);
    }
    return blocks;
}

// Bytes in both memories: the tables, the list, the squares of all blocks.
static int64_t bytes_of(int count, int64_t blocks) {
    return static_cast<int64_t>(sizeof(shown_table) + sizeof(shown_tensor)) * count +
           static_cast<int64_t>(sizeof(double)) * blocks;
}

static ab_status is_recorded(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusNone)
        return AB_OK;
    (void)cudaGetLastError();
    return ab_fail(AB_UNAVAILABLE, "the stream is being recorded as a CUDA graph");
}

static ab_status launch(ab_shown *shown, int64_t blocks, cudaStream_t stream) {
    const int count = shown->count;
    const size_t tables = sizeof(shown_table) * static_cast<size_t>(count),
                 list_bytes = sizeof(shown_tensor) * static_cast<size_t>(count);
    shown_table *table = reinterpret_cast<shown_table *>(shown->there);
    shown_tensor *list = reinterpret_cast<shown_tensor *>(shown->there + tables);
    double *squares = reinterpret_cast<double *>(shown->there + tables + list_bytes);
    (void)lay_out(shown->ask, count, reinterpret_cast<shown_tensor *>(shown->here + tables));
    shown->table = reinterpret_cast<const shown_table *>(shown->here);
    AB_CUDA_TRY(cudaEventRecord(shown->begun, stream));
    AB_CUDA_TRY(cudaMemsetAsync(table, 0, tables, stream));
    AB_CUDA_TRY(cudaMemcpyAsync(list, shown->here + tables, list_bytes, cudaMemcpyHostToDevice, stream));
    AB_CUDA_LAUNCH(count_shown, static_cast<unsigned>(blocks), CENSUS_THREADS, 0, stream, list, count, table,
                   squares);
    AB_TRY(ab_cuda_launched("count_shown"));
    AB_CUDA_LAUNCH(join_shown, static_cast<unsigned>(count), CENSUS_THREADS, 0, stream, list, table, squares);
    AB_TRY(ab_cuda_launched("join_shown"));
    AB_CUDA_TRY(cudaMemcpyAsync(shown->here, table, tables, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaEventRecord(shown->done, stream));
    return AB_OK;
}

// A null stream is the default one.
static cudaStream_t stream_of(void *stream) {
    return stream ? static_cast<cudaStream_t>(stream) : cudaStreamLegacy;
}

static ab_status begin(int device, void *stream, const ab_shown_ask *ask, int count, ab_shown **shown) {
    on_device here(device);
    const int64_t blocks = lay_out(ask, count, nullptr);
    AB_CUDA_TRY(here.code);
    AB_TRY(is_recorded(stream_of(stream)));
    if (blocks > INT32_MAX) return ab_fail(AB_UNAVAILABLE, "more values than the GPU counts at once");
    AB_TRY(find_shown(device, ask, count, bytes_of(count, blocks), shown));
    const ab_status status = launch(*shown, blocks, stream_of(stream));
    if (status == AB_OK) return AB_OK;
    (void)cudaStreamSynchronize(stream_of(stream)); // some of it may run
    give_back(*shown);
    *shown = nullptr;
    return status;
}

static ab_status wait(ab_shown *shown, double *seconds) {
    float ms = 0;
    on_device here(shown->device);
    AB_CUDA_TRY(here.code);
    AB_CUDA_TRY(cudaEventSynchronize(shown->done));
    AB_CUDA_TRY(cudaEventElapsedTime(&ms, shown->begun, shown->done));
    *seconds = static_cast<double>(ms) * 1e-3;
    return AB_OK;
}

static void answer(const ab_shown *shown, int i, ab_shown_answer *to) {
    const ab_shown_ask &a = shown->ask[i];
    const shown_table &from = shown->table[i];
    translate(&from.census, ab_shown_counted(&a), &to->census);
    if (a.type == AB_SHOWN_F16) to->census.subnormal = below(&to->census, -14);
    to->nonfinite = a.all ? static_cast<int64_t>(from.nonfinite) : -1;
}

static int device_of(const void *data) {
    cudaPointerAttributes about;
    if (cudaPointerGetAttributes(&about, data) != cudaSuccess) {
        (void)cudaGetLastError();
        return -1;
    }
    const bool is_there = about.type == cudaMemoryTypeDevice || about.type == cudaMemoryTypeManaged;
    return is_there ? about.device : -1;
}

static ab_status pick_into(ab_shown *shown, cudaStream_t stream, int64_t first, int64_t step, int64_t n,
                           float *values) {
    const size_t bytes = static_cast<size_t>(n) * sizeof *values;
    AB_CUDA_LAUNCH(pick_shown, static_cast<unsigned>((n + PICK_THREADS - 1) / PICK_THREADS), PICK_THREADS, 0,
                   stream, tensor_from(shown->ask[0], 0), first, step, n,
                   reinterpret_cast<float *>(shown->there));
    AB_TRY(ab_cuda_launched("pick_shown"));
    AB_CUDA_TRY(cudaMemcpyAsync(shown->here, shown->there, bytes, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    memcpy(values, shown->here, bytes);
    return AB_OK;
}

static ab_status pick(int device, void *stream, const ab_shown_ask *ask, int64_t first, int64_t step,
                      int64_t n, float *values) {
    ab_shown *shown;
    on_device here(device);
    AB_CUDA_TRY(here.code);
    AB_TRY(is_recorded(stream_of(stream)));
    AB_TRY(find_shown(device, ask, 1, n * static_cast<int64_t>(sizeof *values), &shown));
    const ab_status status = pick_into(shown, stream_of(stream), first, step, n, values);
    give_back(shown);
    return status;
}

extern "C" const ab_shown_ops ab_cuda_shown_ops;
const ab_shown_ops ab_cuda_shown_ops = {ab_shown_layout(), device_of, begin, wait, answer, give_back, pick};
