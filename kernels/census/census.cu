// The census on a GPU, in one pass: every block counts into a table in shared memory, then adds it to the
// global one. Counters are integers, so the order of additions does not matter; bins are those of
// census_bin.h, as on the CPU. Squares are summed in an order that depends on n alone.
#include "kernels/census/census.cuh"

// One block per CHUNK values: its share of the sum of squares depends on nothing else.
__global__ static void count_values(ab_span values, bool packed, int64_t n, device_census *census,
                                    double *squares) {
    __shared__ counter bin[BINS], other[OTHERS];
    clear_counters(bin, other);
    int64_t first = static_cast<int64_t>(blockIdx.x) * CHUNK, end = first + CHUNK < n ? first + CHUNK : n;
    own_counts own = {0, 0, 0.0};
    count_range(values, packed, first, end, bin, other, &own);
    double sum = hand_over(bin, other, own, census);
    if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

__global__ static void join_squares(const double *squares, int64_t parts, device_census *census) {
    add_squares(squares, parts, census);
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

ab_status ab_cuda_census(const ab_tensor *tensor, ab_census *census) {
    ab_span values = ab_cuda_span(tensor);
    if (values.type == AB_ELEMENT_NONE)
        return ab_fail(AB_UNAVAILABLE, "census: no CUDA kernel for this number format");
    AB_TRY(ab_cuda_count_values(values, ab_cuda_count(tensor), census));
    if (tensor->format->emin != -126) census->subnormal = below(census, tensor->format->emin);
    return AB_OK;
}
