// Reductions for probes: extremes, non-finite places, sums over rows, and counts of an update
// (update_counts_cuda.cu). Only their results are copied to the host. Counts are integers, whose order does
// not matter; sums are taken in the order of kernels/backend/row_sums.h.
#include "kernels/cuda/backend/reductions_cuda.cuh"

#include <cstddef>
#include <cstring>

enum { EXTREMES_AT_ONCE = 64, PLACES_AT_ONCE = 1024, ROW_WARPS = 8 };
enum { WARP = AB_ROW_LANES }; // a lane of a row is a thread of a warp
static const unsigned all_lanes = 0xffffffffu;

static_assert(static_cast<int>(AB_ROW_LANES) == 32, "threads of a warp");

static float float_of(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// ---- extremes -----------------------------------------------------------------------------------

namespace {
struct device_extremes {
    unsigned long long infinite, nan;
    unsigned largest, unused; // magnitude bits of the largest finite value
};
} // namespace

__device__ static void look_at(float value, unsigned *most, unsigned *infinite, unsigned *nan) {
    unsigned magnitude = ab_bits_of(value) & 0x7fffffffu;
    if (magnitude < 0x7f800000u)
        *most = magnitude > *most ? magnitude : *most;
    else if (magnitude == 0x7f800000u)
        ++*infinite;
    else
        ++*nan;
}

__global__ static void find_extremes(ab_span values, bool packed, int64_t n, device_extremes *found) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, packs = packed ? n / AB_PACK : 0;
    int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned most = 0, infinite = 0, nan = 0;
    for (int64_t p = thread; p < packs; p += step) {
        float x[AB_PACK];
        ab_unpack(values, p * AB_PACK, x);
        for (int k = 0; k < AB_PACK; k++) look_at(x[k], &most, &infinite, &nan);
    }
    for (int64_t i = packs * AB_PACK + thread; i < n; i += step)
        look_at(ab_span_at(values, i), &most, &infinite, &nan);
    for (int by = WARP / 2; by > 0; by /= 2) {
        unsigned other = __shfl_xor_sync(all_lanes, most, by);
        most = other > most ? other : most;
    }
    if (threadIdx.x % WARP == 0 && most) atomicMax(&found->largest, most);
    if (infinite) atomicAdd(&found->infinite, static_cast<unsigned long long>(infinite));
    if (nan) atomicAdd(&found->nan, static_cast<unsigned long long>(nan));
}

static ab_status launch_extremes(const ab_tensor *tensor, device_extremes *found) {
    ab_span values = ab_cuda_span(tensor);
    int64_t n = ab_cuda_count(tensor);
    AB_CUDA_LAUNCH(find_extremes, ab_cuda_blocks((n + AB_PACK - 1) / AB_PACK, AB_CUDA_THREADS),
                   AB_CUDA_THREADS, 0, ab_cuda_context()->stream, values, ab_cuda_packable(values), n, found);
    return ab_cuda_launched("extremes");
}

// Integers have no extremes; every other format needs an element type.
static bool no_kernel(const ab_tensor *tensor) {
    return tensor->format && ab_cuda_type(tensor->format) == AB_ELEMENT_NONE;
}

static ab_status not_here() { return ab_fail(AB_UNAVAILABLE, "no CUDA reduction of this number format"); }

static ab_status some_extremes(const ab_tensor *const *tensor, int count, ab_tensor_extremes *extremes) {
    cudaStream_t stream = ab_cuda_context()->stream;
    device_extremes host[EXTREMES_AT_ONCE];
    size_t bytes = static_cast<size_t>(count) * sizeof host[0];
    void *block;
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, sizeof host, &block));
    device_extremes *found = static_cast<device_extremes *>(block);
    AB_CUDA_TRY(cudaMemsetAsync(found, 0, bytes, stream));
    for (int i = 0; i < count; i++)
        if (tensor[i]->format) AB_TRY(launch_extremes(tensor[i], &found[i]));
    AB_CUDA_TRY(cudaMemcpyAsync(host, found, bytes, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; i++)
        extremes[i] = {static_cast<double>(float_of(host[i].largest)), static_cast<int64_t>(host[i].infinite),
                       static_cast<int64_t>(host[i].nan)};
    return AB_OK;
}

static ab_status extremes_of(const ab_tensor *const *tensor, int count, ab_tensor_extremes *extremes) {
    for (int i = 0; i < count; i++)
        if (no_kernel(tensor[i])) return not_here();
    for (int first = 0; first < count; first += EXTREMES_AT_ONCE) {
        int n = count - first < EXTREMES_AT_ONCE ? count - first : EXTREMES_AT_ONCE;
        AB_TRY(some_extremes(tensor + first, n, extremes + first));
    }
    return AB_OK;
}

// ---- places -------------------------------------------------------------------------------------

// One block goes through the values in order: threads of earlier warps and lanes have earlier places.
__global__ static void find_places(ab_span values, int64_t n, int most, int64_t *place, int *count) {
    __shared__ int before[AB_CUDA_THREADS / WARP];
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int found = 0;
    for (int64_t first = 0; first < n && found < most; first += AB_CUDA_THREADS) {
        int64_t i = first + threadIdx.x;
        bool bad = i < n && !ab_f_finite(ab_span_at(values, i));
        int here = __syncthreads_count(bad);
        if (here == 0) continue;
        unsigned votes = __ballot_sync(all_lanes, bad);
        if (lane == 0) before[warp] = __popc(votes);
        __syncthreads();
        int at = found + __popc(votes & ((1u << lane) - 1u));
        for (int w = 0; w < warp; w++) at += before[w];
        if (bad && at < most) place[at] = i;
        found += here;
        __syncthreads();
    }
    if (threadIdx.x == 0) *count = found < most ? found : most;
}

static ab_status places_of(const ab_tensor *tensor, int64_t *place, int most, int *found) {
    struct {
        int64_t place[PLACES_AT_ONCE];
        int count;
    } host;
    cudaStream_t stream = ab_cuda_context()->stream;
    void *block;
    if (no_kernel(tensor)) return not_here();
    if (most > PLACES_AT_ONCE) most = PLACES_AT_ONCE;
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, sizeof host, &block));
    auto *table = static_cast<decltype(host) *>(block);
    AB_CUDA_TRY(cudaMemsetAsync(table, 0, sizeof host, stream));
    AB_CUDA_LAUNCH(find_places, 1, AB_CUDA_THREADS, 0, stream, ab_cuda_span(tensor), ab_cuda_count(tensor),
                   most, table->place, &table->count);
    AB_TRY(ab_cuda_launched("places"));
    AB_CUDA_TRY(cudaMemcpyAsync(&host, table, sizeof host, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    memcpy(place, host.place, static_cast<size_t>(host.count) * sizeof *place);
    *found = host.count;
    return AB_OK;
}

// ---- rows ---------------------------------------------------------------------------------------

namespace {
struct device_rows {
    unsigned long long finite, zero;
    double squares;
    unsigned largest, silent;
    unsigned heard[AB_ROW_UNITS]; // 1: not zero in some row
};
} // namespace

// The lanes of a warp, added in order; every lane gets the sum.
__device__ static double lanes_in_order(double own) {
    double sum = 0.0;
    for (int l = 0; l < WARP; l++) sum += __shfl_sync(all_lanes, own, l);
    return sum;
}

// A warp per row.
__global__ static void sum_rows(ab_span values, int64_t there, int64_t rows, int64_t units, device_rows *all,
                                double *row_squares) {
    const int lane = threadIdx.x % WARP;
    unsigned finite = 0, zero = 0, most = 0;
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP; row < rows;
         row += static_cast<int64_t>(gridDim.x) * ROW_WARPS) {
        int64_t first = row * there / rows * units;
        double squares = 0.0;
        for (int64_t j = lane; j < units; j += WARP) {
            float x = ab_span_at(values, first + j);
            zero += x == 0.0f;
            if (x != 0.0f) all->heard[j] = 1; // all writers store the same
            if (!ab_f_finite(x)) continue;
            finite++;
            squares += static_cast<double>(x) * static_cast<double>(x);
            unsigned magnitude = ab_bits_of(x) & 0x7fffffffu;
            most = magnitude > most ? magnitude : most;
        }
        squares = lanes_in_order(squares);
        if (lane == 0) row_squares[row] = squares;
    }
    if (finite) atomicAdd(&all->finite, static_cast<unsigned long long>(finite));
    if (zero) atomicAdd(&all->zero, static_cast<unsigned long long>(zero));
    if (most) atomicMax(&all->largest, most);
}

// One warp.
__global__ static void join_rows(const double *row_squares, int64_t rows, int64_t units, device_rows *all) {
    double squares = 0.0;
    unsigned silent = 0;
    for (int64_t i = threadIdx.x; i < rows; i += WARP) squares += row_squares[i];
    for (int64_t j = threadIdx.x; j < units; j += WARP) silent += all->heard[j] == 0;
    squares = lanes_in_order(squares);
    if (silent) atomicAdd(&all->silent, silent);
    if (threadIdx.x == 0) all->squares = squares;
}

static ab_status row_sums_of(const ab_tensor *tensor, int64_t rows, ab_row_sums *sums) {
    enum { HEAD = offsetof(device_rows, heard) };
    cudaStream_t stream = ab_cuda_context()->stream;
    const int64_t units = tensor->shape.dim[tensor->shape.ndim - 1], there = ab_cuda_count(tensor) / units;
    device_rows host;
    void *block;
    if (no_kernel(tensor) || units > AB_ROW_UNITS) return not_here();
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, sizeof host + static_cast<size_t>(rows) * sizeof(double), &block));
    device_rows *all = static_cast<device_rows *>(block);
    double *row_squares = reinterpret_cast<double *>(all + 1);
    AB_CUDA_TRY(cudaMemsetAsync(all, 0, sizeof *all, stream));
    AB_CUDA_LAUNCH(sum_rows, ab_cuda_blocks(rows, ROW_WARPS), ROW_WARPS * WARP, 0, stream,
                   ab_cuda_span(tensor), there, rows, units, all, row_squares);
    AB_TRY(ab_cuda_launched("row_sums"));
    AB_CUDA_LAUNCH(join_rows, 1, WARP, 0, stream, row_squares, rows, units, all);
    AB_TRY(ab_cuda_launched("row_sums_join"));
    AB_CUDA_TRY(cudaMemcpyAsync(&host, all, HEAD, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    sums->finite = static_cast<int64_t>(host.finite);
    sums->zero = static_cast<int64_t>(host.zero);
    sums->silent = static_cast<int64_t>(host.silent);
    sums->squares = host.squares;
    sums->largest = static_cast<double>(float_of(host.largest));
    return AB_OK;
}

// ---- elements -----------------------------------------------------------------------------------

__global__ static void pick_elements(ab_span values, const int64_t *place, int64_t n, float *to) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = ab_span_at(values, place[i]);
}

static ab_status elements_of(const ab_tensor *tensor, const int64_t *place, int64_t n, float *values) {
    cudaStream_t stream = ab_cuda_context()->stream;
    const size_t room = static_cast<size_t>(n) * sizeof *place,
                 bytes = static_cast<size_t>(n) * sizeof *values;
    void *block;
    if (!tensor->format || no_kernel(tensor)) return not_here();
    if (n == 0) return AB_OK;
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, room + bytes, &block));
    int64_t *places = static_cast<int64_t *>(block);
    float *to = reinterpret_cast<float *>(places + n);
    AB_CUDA_TRY(cudaMemcpyAsync(places, place, room, cudaMemcpyHostToDevice, stream));
    AB_CUDA_LAUNCH(pick_elements, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, stream,
                   ab_cuda_span(tensor), places, n, to);
    AB_TRY(ab_cuda_launched("elements"));
    AB_CUDA_TRY(cudaMemcpyAsync(values, to, bytes, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    return AB_OK;
}

extern const ab_reductions ab_cuda_reductions;
const ab_reductions ab_cuda_reductions = {
    extremes_of, places_of, row_sums_of, elements_of, ab_cuda_update_counted, ab_cuda_clip};
