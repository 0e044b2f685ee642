// The census on a GPU, in one pass: every block counts into a table in shared memory, then adds it to the
// global one. Counters are integers, so the order of additions does not matter; bins are those of
// census_bin.h, as on the CPU. Squares are summed in an order that depends on n alone.
#include "kernels/census/census.h"
#include "kernels/cuda/cuda_fold.cuh"

#include <cstring>

enum { BINS = AB_CENSUS_EXPONENTS * AB_CENSUS_CLASSES, CENSUS_THREADS = 256, CHUNK = 1 << 16 };

// Counters other than the bins.
enum { ZERO, NOT_A_NUMBER, POSITIVE_INF, NEGATIVE_INF, SUBNORMAL, OTHERS };

namespace {
// Starts at all zeros.
struct device_census {
    unsigned long long bin[BINS], other[OTHERS];
    unsigned least, most; // magnitude bits, those of `least` inverted
    double squares;
};

// What one thread counts by itself.
struct own_counts {
    unsigned least, most; // as above
    double squares;
};
} // namespace

__device__ static void count_one(float value, unsigned *bin, unsigned *other, own_counts *own) {
    uint32_t bits = ab_bits_of(value), magnitude = bits & 0x7fffffffu;
    if (magnitude != 0 && magnitude < 0x7f800000u) {
        ab_census_place place = ab_census_bin(magnitude);
        atomicAdd(&bin[place.row * AB_CENSUS_CLASSES + place.column], 1u);
        if (magnitude < 0x00800000u) atomicAdd(&other[SUBNORMAL], 1u);
        own->least = ~magnitude > own->least ? ~magnitude : own->least;
        own->most = magnitude > own->most ? magnitude : own->most;
        own->squares += static_cast<double>(value) * static_cast<double>(value);
        return;
    }
    int which = magnitude == 0            ? ZERO
                : magnitude > 0x7f800000u ? NOT_A_NUMBER
                : bits == magnitude       ? POSITIVE_INF
                                          : NEGATIVE_INF;
    atomicAdd(&other[which], 1u);
}

// Values [first, end), eight at a time where the memory is aligned: first is a multiple of CHUNK.
__device__ static void count_range(ab_span values, bool packed, int64_t first, int64_t end, unsigned *bin,
                                   unsigned *other, own_counts *own) {
    int64_t packs = packed ? (end - first) / AB_PACK : 0, single = first + packs * AB_PACK;
    for (int64_t p = threadIdx.x; p < packs; p += CENSUS_THREADS) {
        float x[AB_PACK];
        ab_unpack(values, first + p * AB_PACK, x);
        for (int k = 0; k < AB_PACK; k++) count_one(x[k], bin, other, own);
    }
    for (int64_t i = single + threadIdx.x; i < end; i += CENSUS_THREADS)
        count_one(ab_span_at(values, i), bin, other, own);
}

// One block per CHUNK values: its share of the sum of squares depends on nothing else.
__global__ static void count_values(ab_span values, bool packed, int64_t n, device_census *census,
                                    double *squares) {
    __shared__ unsigned bin[BINS], other[OTHERS];
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS) bin[i] = 0;
    if (threadIdx.x < OTHERS) other[threadIdx.x] = 0;
    __syncthreads();
    int64_t first = static_cast<int64_t>(blockIdx.x) * CHUNK, end = first + CHUNK < n ? first + CHUNK : n;
    own_counts own = {0, 0, 0.0};
    count_range(values, packed, first, end, bin, other, &own);
    double sum = ab_block_fold<CENSUS_THREADS>(ab_plus(), own.squares); // waits for all
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS)
        if (bin[i]) atomicAdd(&census->bin[i], static_cast<unsigned long long>(bin[i]));
    if (threadIdx.x < OTHERS && other[threadIdx.x])
        atomicAdd(&census->other[threadIdx.x], static_cast<unsigned long long>(other[threadIdx.x]));
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
    if (!own.most) return; // this thread has seen no finite non-zero value
    atomicMax(&census->least, own.least);
    atomicMax(&census->most, own.most);
}

// One block, in a fixed order.
__global__ static void join_squares(const double *squares, int64_t parts, device_census *census) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < parts; i += CENSUS_THREADS) sum += squares[i];
    sum = ab_block_fold<CENSUS_THREADS>(ab_plus(), sum);
    if (threadIdx.x == 0) census->squares = sum;
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
    to->min_abs = from->most ? float_of(~from->least) : 0.0f;
    to->max_abs = from->most ? float_of(from->most) : 0.0f;
    to->sum_squares = from->squares;
    for (int i = 0; i < BINS; i++)
        to->bin[i / AB_CENSUS_CLASSES][i % AB_CENSUS_CLASSES] = static_cast<int64_t>(from->bin[i]);
}

ab_status ab_cuda_count_values(ab_span values, int64_t n, ab_census *census) {
    static device_census host;
    ab_cuda *cuda = ab_cuda_context();
    const int64_t chunks = n > 0 ? (n + CHUNK - 1) / CHUNK : 1;
    void *block;
    if (n > (static_cast<int64_t>(1) << 40))
        return ab_fail(AB_UNAVAILABLE, "census: more values than the GPU counts");
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, sizeof host + static_cast<size_t>(chunks) * sizeof(double), &block));
    device_census *table = static_cast<device_census *>(block);
    double *squares = reinterpret_cast<double *>(table + 1);
    AB_CUDA_TRY(cudaMemsetAsync(table, 0, sizeof *table, cuda->stream));
    AB_CUDA_LAUNCH(count_values, static_cast<unsigned>(chunks), CENSUS_THREADS, 0, cuda->stream, values,
                   ab_cuda_packable(values), n, table, squares);
    AB_TRY(ab_cuda_launched("census"));
    AB_CUDA_LAUNCH(join_squares, 1, CENSUS_THREADS, 0, cuda->stream, squares, chunks, table);
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
