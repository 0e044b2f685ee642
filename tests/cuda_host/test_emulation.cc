// The emulation itself: it computes what CUDA's documentation says, and it finds mistakes that are planted in
// kernels here.
#include "cublasLt.h"
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

static std::string found; // the first mistake since the last look
static int failures;

static void keep(const char *text) {
    if (found.empty()) found = text;
}

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            failures++;                                                                                      \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                 \
        }                                                                                                    \
    } while (0)

static cudaStream_t stream;

static void wait() { CHECK(cudaStreamSynchronize(stream) == cudaSuccess); }

// Runs what was launched; the mistake must contain `expected` ("": none).
static void expect(const char *what, const char *expected) {
    wait();
    bool right = *expected ? found.find(expected) != std::string::npos : found.empty();
    if (!right) {
        failures++;
        printf("%s: expected a mistake with '%s', found '%s'\n", what, expected, found.c_str());
    }
    found.clear();
}

template <typename T> static T *room(size_t count) {
    T *p = nullptr;
    CHECK(cudaMalloc(&p, count * sizeof(T)) == cudaSuccess);
    return p;
}

template <typename T> static T *zeros(size_t count) {
    T *p = room<T>(count);
    CHECK(cudaMemsetAsync(p, 0, count * sizeof(T), stream) == cudaSuccess);
    return p;
}

template <typename T> static std::vector<T> fetch(const T *from, size_t count) {
    std::vector<T> to(count);
    CHECK(cudaMemcpyAsync(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return to;
}

// ---- shuffles and votes -------------------------------------------------------------------------

enum { UP, DOWN, XOR, INDEX };

__global__ static void shuffle_lanes(int how, int by, int width, int *out) {
    int lane = static_cast<int>(threadIdx.x), x = lane;
    if (how == UP) x = __shfl_up_sync(0xffffffffu, x, by, width);
    if (how == DOWN) x = __shfl_down_sync(0xffffffffu, x, by, width);
    if (how == XOR) x = __shfl_xor_sync(0xffffffffu, x, by, width);
    if (how == INDEX) x = __shfl_sync(0xffffffffu, x, by, width);
    out[lane] = x;
}

// The first sixteen lanes, as the guide describes them: groups of `width` lanes; what is not in the group is
// the lane's own value, except that xor may read from earlier groups; an index is taken modulo the width.
static void shuffles_are_those_of_the_guide() {
    static const struct {
        int how, by, width, lanes[16];
    } rows[] = {
        {UP, 2, 32, {0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
        {UP, 2, 8, {0, 1, 0, 1, 2, 3, 4, 5, 8, 9, 8, 9, 10, 11, 12, 13}},
        {DOWN, 3, 8, {3, 4, 5, 6, 7, 5, 6, 7, 11, 12, 13, 14, 15, 13, 14, 15}},
        {DOWN, 1, 16, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 15}},
        {XOR, 1, 32, {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}},
        {XOR, 4, 8, {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11}},
        {XOR, 8, 8, {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}},
        {INDEX, 5, 8, {5, 5, 5, 5, 5, 5, 5, 5, 13, 13, 13, 13, 13, 13, 13, 13}},
        {INDEX, 9, 4, {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13}},
    };
    int *out = zeros<int>(32);
    for (const auto &row : rows) {
        AB_CUDA_LAUNCH(shuffle_lanes, 1, 32, 0, stream, row.how, row.by, row.width, out);
        std::vector<int> lanes = fetch(out, 32);
        for (int i = 0; i < 16; i++) CHECK(lanes[static_cast<size_t>(i)] == row.lanes[i]);
        expect("a shuffle", "");
    }
    AB_CUDA_LAUNCH(shuffle_lanes, 1, 32, 0, stream, XOR, 1, 12, out);
    expect("a width that is no power of two", "width 12");
    AB_CUDA_LAUNCH(shuffle_lanes, 1, 20, 0, stream, DOWN, 4, 32, out);
    expect("a lane that does not exist", "takes no part");
    cudaFree(out);
}

__global__ static void vote(unsigned *out) {
    int x = static_cast<int>(threadIdx.x);
    unsigned odd = __ballot_sync(0xffffffffu, x & 1);
    unsigned any = __any_sync(0xffffffffu, x == 37), all = __all_sync(0xffffffffu, x < 64);
    int one = __syncthreads_or(x == 63), none = __syncthreads_or(x == 64), every = __syncthreads_and(x < 64);
    int few = __syncthreads_count(x < 5);
    if (x == 32) {
        out[0] = odd;
        out[1] = any * 8 + all * 4 + static_cast<unsigned>(one * 2 + none);
        out[2] = static_cast<unsigned>(every * 100 + few);
    }
}

static void votes_count_the_threads() {
    unsigned *out = zeros<unsigned>(3);
    AB_CUDA_LAUNCH(vote, 1, 64, 0, stream, out);
    std::vector<unsigned> v = fetch(out, 3);
    CHECK(v[0] == 0xaaaaaaaau && v[1] == 14 && v[2] == 105);
    expect("votes", "");
    cudaFree(out);
}

// ---- barriers -----------------------------------------------------------------------------------

__global__ static void reverse(const int *in, int *out, bool with_barrier) {
    __shared__ int held[64];
    held[threadIdx.x] = in[threadIdx.x];
    if (with_barrier) __syncthreads();
    out[threadIdx.x] = held[63 - threadIdx.x];
}

__global__ static void some_wait(int *out) {
    if (threadIdx.x < 16) __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ static void two_places(int *out) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ static void read_before_write(int *out) {
    __shared__ int held[64];
    if (threadIdx.x < 63) held[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = held[threadIdx.x];
}

static void a_missing_or_divergent_barrier_is_found() {
    int *in = zeros<int>(64), *out = zeros<int>(64);
    for (emulated::order order : {emulated::FORWARD, emulated::REVERSE, emulated::SHUFFLED}) {
        emulated::options().threads = order;
        AB_CUDA_LAUNCH(reverse, 2, 64, 0, stream, in, out, true);
        expect("a barrier", "");
        AB_CUDA_LAUNCH(reverse, 1, 64, 0, stream, in, out, false);
        wait();
        CHECK(found.find("race") != std::string::npos || found.find("nobody wrote") != std::string::npos);
        found.clear();
        AB_CUDA_LAUNCH(some_wait, 1, 64, 0, stream, out);
        expect("a barrier for some", "have ended");
        AB_CUDA_LAUNCH(two_places, 1, 64, 0, stream, out);
        expect("two barriers", "divergence");
        AB_CUDA_LAUNCH(read_before_write, 2, 64, 0, stream, out);
        expect("shared memory that nobody wrote", "shared memory");
    }
    cudaFree(in), cudaFree(out);
}

// ---- memory -------------------------------------------------------------------------------------

__global__ static void copy_plus_one(const int *in, int *out, int n) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += static_cast<int>(gridDim.x * blockDim.x))
        out[i] = in[i] + 1;
}

static volatile int host_value;

__global__ static void write_to(int *out) { *out = 1; }

static void wrong_addresses_are_found() {
    int *in = zeros<int>(100), *out = room<int>(100), *bare = room<int>(100);
    AB_CUDA_LAUNCH(copy_plus_one, 2, 32, 0, stream, in, out, 100);
    expect("all within", "");
    CHECK(fetch(out, 100)[99] == 1);
    AB_CUDA_LAUNCH(copy_plus_one, 2, 32, 0, stream, in, out, 101);
    expect("one too many", "outside of every allocation");
    AB_CUDA_LAUNCH(copy_plus_one, 2, 32, 0, stream, bare, out, 100);
    expect("values that nobody wrote", "nobody wrote");
    AB_CUDA_LAUNCH(write_to, 1, 1, 0, stream, reinterpret_cast<int *>(reinterpret_cast<char *>(out) + 2));
    expect("an odd address", "aligned");
    int *heap = static_cast<int *>(malloc(sizeof(int)));
    AB_CUDA_LAUNCH(write_to, 1, 1, 0, stream, heap);
    expect("the host's memory", "not the device's memory");
    free(heap);
    cudaFree(out);
    AB_CUDA_LAUNCH(write_to, 1, 1, 0, stream, out);
    expect("memory that was freed", "outside of every allocation");
    host_value = *in;
    expect("the host reads", "the host reads device memory");
    cudaFree(in), cudaFree(bare);
}

// ---- races --------------------------------------------------------------------------------------

__global__ static void all_write(int *out, bool same) { *out = same ? 7 : static_cast<int>(threadIdx.x); }

__global__ static void blocks_write(int *out, bool same) { *out = same ? 7 : static_cast<int>(blockIdx.x); }

__global__ static void count(int *total, bool atomic) {
    if (atomic || threadIdx.x % 2)
        atomicAdd(total, 1);
    else
        *total += 1;
}

__global__ static void neighbours(const int *in, int *out) {
    out[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x > 0) out[threadIdx.x] += out[threadIdx.x - 1];
}

static void races_are_found() {
    int *out = zeros<int>(64), *in = zeros<int>(64);
    AB_CUDA_LAUNCH(all_write, 1, 64, 0, stream, out, true);
    AB_CUDA_LAUNCH(blocks_write, 4, 1, 0, stream, out, true);
    expect("the same value", "");
    AB_CUDA_LAUNCH(all_write, 1, 64, 0, stream, out, false);
    expect("threads with different values", "different values");
    AB_CUDA_LAUNCH(blocks_write, 4, 1, 0, stream, out, false);
    expect("blocks with different values", "different values");
    AB_CUDA_LAUNCH(count, 3, 64, 0, stream, in, true);
    expect("atomic additions", "");
    CHECK(fetch(in, 1)[0] == 192);
    AB_CUDA_LAUNCH(count, 1, 64, 0, stream, in, false);
    expect("additions that are not atomic", "race");
    AB_CUDA_LAUNCH(neighbours, 1, 64, 0, stream, in, out);
    expect("a neighbour's value", "race");
    cudaFree(in), cudaFree(out);
}

// ---- streams and graphs -------------------------------------------------------------------------

static void streams_run_late_and_events_order_them() {
    cudaStream_t other;
    cudaEvent_t event;
    int *pinned = nullptr, *in = zeros<int>(4), *out = zeros<int>(4);
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaEventCreate(&event) == cudaSuccess);
    CHECK(cudaMallocHost(&pinned, 4 * sizeof(int)) == cudaSuccess);
    wait();
    for (int i = 0; i < 4; i++) pinned[i] = 1;
    CHECK(cudaMemcpyAsync(in, pinned, 16, cudaMemcpyHostToDevice, other) == cudaSuccess);
    pinned[0] = 5; // too early: the copy has not run
    CHECK(cudaEventRecord(event, other) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
    AB_CUDA_LAUNCH(copy_plus_one, 1, 32, 0, stream, in, out, 4);
    std::vector<int> v = fetch(out, 4);
    CHECK(v[0] == 6 && v[1] == 2);
    expect("streams", "");
    CHECK(cudaMemcpyAsync(out, pinned, 16, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    found.clear();
    wait();
    found.clear();
    cudaFreeHost(pinned), cudaFree(in), cudaFree(out), cudaEventDestroy(event), cudaStreamDestroy(other);
}

static void graphs_repeat_what_was_recorded() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *value = zeros<int>(1);
    wait();
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    AB_CUDA_LAUNCH(count, 1, 2, 0, stream, value, true);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(fetch(value, 1)[0] == 0);
    for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(fetch(value, 1)[0] == 6);
    expect("a graph", "");
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    AB_CUDA_LAUNCH(count, 1, 2048, 0, stream, value, true);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
    cudaFree(value);
}

// ---- products -----------------------------------------------------------------------------------

// D [2, 2] = A [2, 3] B [3, 2], column-major; `workspace_of`: where the workspace lies.
static void multiply(float *a, float *b, float *d, int64_t step_a, bool destroyed, char *workspace) {
    static cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t as, bs, ds;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    const size_t most = 1 << 20;
    const unsigned scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const float one = 1.0f, zero = 0.0f;
    int count = 0;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&as, CUDA_R_32F, 2, 3, step_a);
    cublasLtMatrixLayoutCreate(&bs, CUDA_R_32F, 3, 2, 3);
    cublasLtMatrixLayoutCreate(&ds, CUDA_R_32F, 2, 2, 2);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                         sizeof most);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                         sizeof scheme);
    cublasLtMatmulAlgoGetHeuristic(handle, desc, as, bs, ds, ds, preference, 1, &result, &count);
    if (destroyed) cublasLtMatrixLayoutDestroy(bs);
    if (count)
        cublasLtMatmul(handle, desc, &one, a, as, b, bs, &zero, d, ds, d, ds, &result.algo, workspace,
                       result.workspaceSize, stream);
}

static void products_are_checked_and_computed() {
    static const float a_values[] = {1, 2, 3, 4, 5, 6}, b_values[] = {1, 0, 1, 0, 1, 0};
    float *a = room<float>(8), *b = room<float>(6), *d = room<float>(4);
    char *workspace = room<char>(1 << 16);
    cudaMemcpyAsync(a, a_values, sizeof a_values, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(b, b_values, sizeof b_values, cudaMemcpyHostToDevice, stream);
    multiply(a, b, d, 2, false, workspace);
    std::vector<float> v = fetch(d, 4);
    CHECK(v[0] == 6 && v[1] == 8 && v[2] == 3 && v[3] == 4);
    expect("a product", "");
    multiply(a, b, d, 1, false, workspace);
    expect("a step that is too small", "leading dimension");
    multiply(a, b, d, 4, false, workspace);
    expect("a step that is too large", "not within an allocation");
    multiply(a, b, d, 2, true, workspace);
    expect("a layout that is gone", "was destroyed");
    multiply(a, b, d, 2, false, reinterpret_cast<char *>(d));
    expect("a workspace on the result", "overlaps");
    multiply(a + 1, b, d, 2, false, workspace);
    expect("a matrix off its alignment", "alignment");
    cudaFree(a), cudaFree(b), cudaFree(d), cudaFree(workspace);
}

// ---- orders -------------------------------------------------------------------------------------

__global__ static void visit(int *seen) {
    unsigned block = blockIdx.x + gridDim.x * blockIdx.y, t = threadIdx.x + blockDim.x * threadIdx.y;
    __syncthreads();
    seen[block * 48 + t] += 1;
}

static void every_thread_runs_once_in_each_order() {
    for (emulated::order order : {emulated::FORWARD, emulated::REVERSE, emulated::SHUFFLED}) {
        emulated::options().threads = order;
        int *seen = zeros<int>(21 * 48);
        AB_CUDA_LAUNCH(visit, dim3(7, 3), dim3(16, 3), 0, stream, seen);
        for (int x : fetch(seen, 21 * 48)) CHECK(x == 1);
        expect("an order", "");
        cudaFree(seen);
    }
}

int main() {
    emulated::on_mistake = keep;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    shuffles_are_those_of_the_guide();
    votes_count_the_threads();
    a_missing_or_divergent_barrier_is_found();
    wrong_addresses_are_found();
    races_are_found();
    streams_run_late_and_events_order_them();
    graphs_repeat_what_was_recorded();
    products_are_checked_and_computed();
    every_thread_runs_once_in_each_order();
    printf("%d failures\n", failures);
    return failures != 0;
}
