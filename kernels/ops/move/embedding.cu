// embedding on CUDA. The table's gradient is summed per row in the order of the positions: each position
// counts the earlier positions with its id, which gives its rank in a list sorted by id. An id out of range
// (an error on the CPU) gives NaN and no gradient.
#include "kernels/cuda/cuda_fold.cuh"

namespace {

enum { RANK_THREADS = 256, SCAN_THREADS = 1024, ROW_THREADS = 128 };

struct lookup {
    const int32_t *ids;
    int64_t positions, rows, dim, padding;
    int32_t *count, *begin, *rank, *list; // sizes: rows; rows + 1; positions; positions
};

static lookup measure(const ab_op_io *io) {
    lookup l = {};
    l.ids = static_cast<const int32_t *>(io->in[0]->data);
    l.positions = ab_cuda_count(io->in[0]);
    l.rows = ab_cuda_int(io, "num_embeddings", 1);
    l.dim = ab_cuda_int(io, "embedding_dim", 1);
    l.padding = ab_cuda_int(io, "padding_idx", -1);
    return l;
}

static lookup place(const ab_exec *exec, const ab_op_io *io) {
    lookup l = measure(io);
    l.count = static_cast<int32_t *>(exec->workspace);
    l.begin = l.count + l.rows;
    l.rank = l.begin + l.rows + 1;
    l.list = l.rank + l.positions;
    return l;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    lookup l = measure(io);
    *workspace_bytes = static_cast<size_t>(2 * l.rows + 1 + 2 * l.positions) * sizeof(int32_t);
    return AB_OK;
}

// ---- forward ------------------------------------------------------------------------------------

struct gathered {
    lookup l;
    ab_span table;
    __device__ float operator()(int64_t i) const {
        int64_t c, id = l.ids[ab_divide(i, l.dim, &c)];
        if (id < 0 || id >= l.rows) return ab_float_of(0x7fc00000u);
        return ab_span_at(table, id * l.dim + c);
    }
};

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    gathered f = {measure(io), ab_cuda_span(io->param[0])};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "embedding"); });
}

// ---- backward -----------------------------------------------------------------------------------

// rank[i]: number of positions before i with the same id. Blocks compare with one tile of ids at a time.
// Counts are integers, so the order of additions does not matter.
__global__ static void rank_positions(lookup l) {
    __shared__ int32_t tile[RANK_THREADS];
    int64_t first = static_cast<int64_t>(blockIdx.x) * RANK_THREADS, i = first + threadIdx.x;
    int32_t id = i < l.positions ? l.ids[i] : -1, rank = 0;
    for (int64_t from = 0; from <= first; from += RANK_THREADS) {
        tile[threadIdx.x] = from + threadIdx.x < l.positions ? l.ids[from + threadIdx.x] : -1;
        __syncthreads();
        int before = from < first ? RANK_THREADS : static_cast<int>(threadIdx.x);
        for (int k = 0; k < before; k++) rank += tile[k] == id;
        __syncthreads();
    }
    if (i >= l.positions) return;
    l.rank[i] = rank;
    if (id >= 0 && id < l.rows) atomicAdd(&l.count[id], 1);
}

// begin[row] = sum of count[0 .. row). One block: each thread sums a range of rows, then the ranges are
// combined in order.
__global__ static void scan_counts(lookup l) {
    __shared__ int32_t held[SCAN_THREADS];
    int64_t share = (l.rows + SCAN_THREADS - 1) / SCAN_THREADS, first = share * threadIdx.x;
    int64_t end = first + share < l.rows ? first + share : l.rows;
    int32_t sum = 0;
    for (int64_t row = first; row < end; row++) sum += l.count[row];
    held[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t total = 0;
        for (int t = 0; t < SCAN_THREADS; t++) {
            int32_t own = held[t];
            held[t] = total;
            total += own;
        }
        l.begin[l.rows] = total;
    }
    __syncthreads();
    int32_t at = held[threadIdx.x];
    for (int64_t row = first; row < end; row++) {
        l.begin[row] = at;
        at += l.count[row];
    }
}

__global__ static void list_positions(lookup l) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < l.positions;
         i += step) {
        int32_t id = l.ids[i];
        if (id >= 0 && id < l.rows) l.list[l.begin[id] + l.rank[i]] = static_cast<int32_t>(i);
    }
}

// One block per row, one thread per column: fp32 sums in the order of the positions, as on the CPU.
__global__ static void sum_rows(lookup l, ab_span dout, ab_span dtable) {
    for (int64_t row = blockIdx.x; row < l.rows; row += gridDim.x)
        for (int64_t c = threadIdx.x; c < l.dim; c += ROW_THREADS) {
            float sum = 0.0f;
            for (int32_t k = l.begin[row]; row != l.padding && k < l.begin[row + 1]; k++)
                sum += ab_span_at(dout, l.list[k] * l.dim + c);
            ab_store(dtable.data, dtable.type, row * l.dim + c, sum);
        }
}

static ab_status sort_positions(const lookup &l) {
    cudaStream_t stream = ab_cuda_context()->stream;
    AB_CUDA_TRY(cudaMemsetAsync(l.count, 0, static_cast<size_t>(l.rows) * sizeof(int32_t), stream));
    AB_CUDA_LAUNCH(rank_positions, static_cast<unsigned>((l.positions + RANK_THREADS - 1) / RANK_THREADS),
                   RANK_THREADS, 0, stream, l);
    AB_TRY(ab_cuda_launched("embedding_rank"));
    AB_CUDA_LAUNCH(scan_counts, 1, SCAN_THREADS, 0, stream, l);
    AB_TRY(ab_cuda_launched("embedding_scan"));
    AB_CUDA_LAUNCH(list_positions, ab_cuda_blocks(l.positions, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, stream,
                   l);
    return ab_cuda_launched("embedding_list");
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->dparam[0]) return AB_OK;
    lookup l = place(exec, io);
    ab_span dout = ab_cuda_span(io->dout);
    unsigned blocks = static_cast<unsigned>(l.rows < 65535 ? l.rows : 65535);
    AB_TRY(sort_positions(l));
    return ab_cuda_emit(exec, io->dparam[0], [=](ab_span dtable) {
        AB_CUDA_LAUNCH(sum_rows, blocks, ROW_THREADS, 0, ab_cuda_context()->stream, l, dout, dtable);
        return ab_cuda_launched("embedding_rows");
    });
}

} // namespace

const ab_op ab_cuda_embedding = ab_cuda_op("embedding", prepare, forward, backward);
