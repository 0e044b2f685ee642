// What the files of the CUDA census share: the counters and how one value is counted. Internal to the plugin.
#ifndef AB_KERNELS_CENSUS_CENSUS_CUH
#define AB_KERNELS_CENSUS_CENSUS_CUH

#include "kernels/census/census.h"
#include "kernels/cuda/cuda_fold.cuh"

#include <cstring>

enum { BINS = AB_CENSUS_EXPONENTS * AB_CENSUS_CLASSES, CENSUS_THREADS = 256, CHUNK = 1 << 16 };

typedef unsigned counter; // of the values of one block

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

__device__ static void count_one(float value, counter *bin, counter *other, own_counts *own) {
    uint32_t bits = ab_bits_of(value), magnitude = bits & 0x7fffffffu;
    if (magnitude != 0 && magnitude < 0x7f800000u) {
        ab_census_place place = ab_census_bin(magnitude);
        atomicAdd(&bin[place.row * AB_CENSUS_CLASSES + place.column], counter(1));
        if (magnitude < 0x00800000u) atomicAdd(&other[SUBNORMAL], counter(1));
        own->least = ~magnitude > own->least ? ~magnitude : own->least;
        own->most = magnitude > own->most ? magnitude : own->most;
        own->squares += static_cast<double>(value) * static_cast<double>(value);
        return;
    }
    int which = magnitude == 0            ? ZERO
                : magnitude > 0x7f800000u ? NOT_A_NUMBER
                : bits == magnitude       ? POSITIVE_INF
                                          : NEGATIVE_INF;
    atomicAdd(&other[which], counter(1));
}

// Values [first, end), eight at a time where the memory is aligned: first is a multiple of CHUNK.
__device__ static void count_range(ab_span values, bool packed, int64_t first, int64_t end, counter *bin,
                                   counter *other, own_counts *own) {
    int64_t packs = packed ? (end - first) / AB_PACK : 0, single = first + packs * AB_PACK;
    for (int64_t p = threadIdx.x; p < packs; p += CENSUS_THREADS) {
        float x[AB_PACK];
        ab_unpack(values, first + p * AB_PACK, x);
        for (int k = 0; k < AB_PACK; k++) count_one(x[k], bin, other, own);
    }
    for (int64_t i = single + threadIdx.x; i < end; i += CENSUS_THREADS)
        count_one(ab_span_at(values, i), bin, other, own);
}

// The counters of a block in shared memory; all threads of the block call these.
__device__ static inline void clear_counters(counter *bin, counter *other) {
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS) bin[i] = 0;
    if (threadIdx.x < OTHERS) other[threadIdx.x] = 0;
    __syncthreads();
}

// Adds the counters of a block to the table; the sum of squares of the whole block is returned.
__device__ static inline double hand_over(const counter *bin, const counter *other, const own_counts &own,
                                          device_census *census) {
    double sum = ab_block_fold<CENSUS_THREADS>(ab_plus(), own.squares); // waits for all
    for (int i = threadIdx.x; i < BINS; i += CENSUS_THREADS)
        if (bin[i]) atomicAdd(&census->bin[i], static_cast<unsigned long long>(bin[i]));
    if (threadIdx.x < OTHERS && other[threadIdx.x])
        atomicAdd(&census->other[threadIdx.x], static_cast<unsigned long long>(other[threadIdx.x]));
    if (!own.most) return sum; // this thread has seen no finite non-zero value
    atomicMax(&census->least, own.least);
    atomicMax(&census->most, own.most);
    return sum;
}

// Squares of `parts` blocks, in a fixed order; one block.
__device__ static inline void add_squares(const double *squares, int64_t parts, device_census *census) {
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < parts; i += CENSUS_THREADS) sum += squares[i];
    sum = ab_block_fold<CENSUS_THREADS>(ab_plus(), sum);
    if (threadIdx.x == 0) census->squares = sum;
}

// ---- on the host --------------------------------------------------------------------------------

static inline float float_of(unsigned bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void translate(const device_census *from, int64_t n, ab_census *to) {
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

// Subnormals of a format of its own: values below its smallest normal one.
static inline int64_t below(const ab_census *census, int emin) {
    int64_t sum = 0;
    for (int e = AB_CENSUS_EMIN; e < emin; e++)
        for (int c = 0; c < AB_CENSUS_CLASSES; c++) sum += census->bin[e - AB_CENSUS_EMIN][c];
    return sum;
}

#endif
