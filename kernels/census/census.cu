// The census on a GPU: every block counts into a table in shared memory, then adds it to the global one.
// All counters are integers, so the order of additions does not matter; bins are those of census_bin.h,
// as on the CPU.
#include "kernels/census/census.h"
#include "kernels/cuda/cuda_ops.cuh"

#include <cstring>

enum { BINS = AB_CENSUS_EXPONENTS * AB_CENSUS_CLASSES, CENSUS_THREADS = 512 };

// Counters other than the bins.
enum { ZERO, NOT_A_NUMBER, POSITIVE_INF, NEGATIVE_INF, SUBNORMAL, OTHERS };

namespace {
struct device_census {
    unsigned long long bin[BINS], other[OTHERS];
    unsigned least, most; // magnitude bits; least starts at all ones, most at 0
    double squares;
};
} // namespace

__device__ static void count_one(float value, unsigned *bin, unsigned *other, unsigned *least,
                                 unsigned *most) {
    uint32_t bits = ab_bits_of(value), magnitude = bits & 0x7fffffffu;
    if (magnitude != 0 && magnitude < 0x7f800000u) {
        ab_census_place place = ab_census_bin(magnitude);
        atomicAdd(&bin[place.row * AB_CENSUS_CLASSES + place.column], 1u);
        if (magnitude < 0x00800000u) atomicAdd(&other[SUBNORMAL], 1u);
        *least = magnitude < *least ? magnitude : *least;
        *most = magnitude > *most ? magnitude : *most;
        return;
    }
    int which = magnitude == 0            ? ZERO
                : magnitude > 0x7f800000u ? NOT_A_NUMBER
                : bits == magnitude       ? POSITIVE_INF
                                          : NEGATIVE_INF;
    atomicAdd(&other[which], 1u);
}

// A block counts fewer than 2^32 values: the host limits its share of n.
__global__ static void count_values(ab_span values, int64_t n, device_census *census) {
    __shared__ unsigned bin[BINS], other[OTHERS];
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS) bin[i] = 0;
    if (threadIdx.x < OTHERS) other[threadIdx.x] = 0;
    __syncthreads();
    unsigned least = 0xffffffffu, most = 0;
    int64_t step = static_cast<int64_t>(gridDim.x) * CENSUS_THREADS;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * CENSUS_THREADS + threadIdx.x; i < n; i += step)
        count_one(ab_span_at(values, i), bin, other, &least, &most);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS)
        if (bin[i]) atomicAdd(&census->bin[i], static_cast<unsigned long long>(bin[i]));
    if (threadIdx.x < OTHERS && other[threadIdx.x])
        atomicAdd(&census->other[threadIdx.x], static_cast<unsigned long long>(other[threadIdx.x]));
    if (most) { // this thread has seen a finite non-zero value
        atomicMin(&census->least, least);
        atomicMax(&census->most, most);
    }
}

// One block, in a fixed order.
__global__ static void sum_squares(ab_span values, int64_t n, device_census *census) {
    __shared__ double part[CENSUS_THREADS];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n; i += CENSUS_THREADS) {
        float x = ab_span_at(values, i);
        if (ab_f_finite(x)) sum += static_cast<double>(x) * static_cast<double>(x);
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = CENSUS_THREADS / 2; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) census->squares = part[0];
}

static float float_of(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void translate(const device_census *from, int64_t n, ab_census *to) {
    memset(to, 0, sizeof *to);
    to->count = n;
    to->zero = static_cast<int64_t>(from->other[ZERO]);
    to->nan = static_cast<int64_t>(from->other[NOT_A_NUMBER]);
    to->pos_inf = static_cast<int64_t>(from->other[POSITIVE_INF]);
    to->neg_inf = static_cast<int64_t>(from->other[NEGATIVE_INF]);
    to->subnormal = static_cast<int64_t>(from->other[SUBNORMAL]);
    to->min_abs = from->most ? float_of(from->least) : 0.0f;
    to->max_abs = from->most ? float_of(from->most) : 0.0f;
    to->sum_squares = from->squares;
    for (int i = 0; i < BINS; i++)
        to->bin[i / AB_CENSUS_CLASSES][i % AB_CENSUS_CLASSES] = static_cast<int64_t>(from->bin[i]);
}

static device_census *device_table() {
    static device_census *table;
    if (!table && cudaMalloc(&table, sizeof *table) != cudaSuccess) table = nullptr;
    return table;
}

ab_status ab_cuda_count_values(ab_span values, int64_t n, ab_census *census) {
    static device_census host;
    ab_cuda *cuda = ab_cuda_context();
    device_census *table = device_table();
    if (!table) return ab_fail(AB_NO_MEMORY, "cuda:%d: out of memory (census)", cuda->index);
    if (n > (static_cast<int64_t>(1) << 31))
        return ab_fail(AB_UNAVAILABLE, "census: more values than the GPU counts");
    memset(&host, 0, sizeof host);
    host.least = 0xffffffffu;
    AB_CUDA_TRY(cudaMemcpyAsync(table, &host, sizeof host, cudaMemcpyHostToDevice, cuda->stream));
    int64_t blocks = (n + CENSUS_THREADS * 64 - 1) / (CENSUS_THREADS * 64),
            most = 2ll * cuda->multiprocessors;
    if (blocks > most) blocks = most;
    AB_CUDA_LAUNCH(count_values, static_cast<unsigned>(blocks < 1 ? 1 : blocks), CENSUS_THREADS, 0,
                   cuda->stream, values, n, table);
    AB_TRY(ab_cuda_launched("census"));
    AB_CUDA_LAUNCH(sum_squares, 1, CENSUS_THREADS, 0, cuda->stream, values, n, table);
    AB_TRY(ab_cuda_launched("census_squares"));
    AB_CUDA_TRY(cudaMemcpyAsync(&host, table, sizeof host, cudaMemcpyDeviceToHost, cuda->stream));
    AB_CUDA_TRY(cudaStreamSynchronize(cuda->stream));
    translate(&host, n, census);
    return AB_OK;
}

// Subnormal: below the format's own smallest normal value.
static int64_t below(const ab_census *census, int emin) {
    int64_t sum = 0;
    for (int e = AB_CENSUS_EMIN; e < emin; e++)
        for (int c = 0; c < AB_CENSUS_CLASSES; c++) sum += census->bin[e - AB_CENSUS_EMIN][c];
    return sum;
}

ab_status ab_cuda_census(const ab_tensor *tensor, ab_census *census) {
    ab_span values = ab_cuda_span(tensor);
    if (values.type == AB_ELEMENT_NONE)
        return ab_fail(AB_UNAVAILABLE, "census: no CUDA kernel for this number format");
    AB_TRY(ab_cuda_count_values(values, ab_cuda_count(tensor), census));
    if (tensor->format->emin != -126) census->subnormal = below(census, tensor->format->emin);
    return AB_OK;
}
