// An optimizer step of one parameter that also counts what probes want to know of it: a thread block per
// AB_UPDATE_BLOCK elements, then the sums of runs of blocks. Sums are taken in the order of
// kernels/backend/update_counts.h, so they are the bits that the host's probes compute.
#include "kernels/cuda/backend/reductions_cuda.cuh"

#include <cmath>
#include <cstring>

enum { THREADS = 256, EACH = AB_UPDATE_BLOCK / THREADS, WARP_RUNS = 32 };
enum { TERMS = AB_UPDATE_CAUSES, WHOLE = AB_CAUSE_TOTAL };

static_assert(static_cast<int>(AB_F_TERMS) == static_cast<int>(AB_TERM_COUNT), "terms in one order");

namespace {
struct counted_update {
    ab_span weight, grad, state[AB_UPDATE_MAX_STATES], model; // data null if absent
    int64_t n;
    ab_span shown[1 + AB_UPDATE_MAX_STATES]; // weight and states before they are rounded; data null if not
    unsigned *largest;                       // per row; null if unwanted
    int64_t width;                           // of a row
    int kind, precision, smallest;           // of the weight's format: digits, and least exponent plus 127
    int64_t stride;                          // of the elements in the histograms
    ab_update_row row;
    ab_update_question question;
};

struct histograms {
    unsigned ratio[AB_RATIOS];
    unsigned long long size[AB_SIZES], size_lost[AB_SIZES];
};

// The values of one element.
struct element {
    float before, grad, after, stored, held[AB_UPDATE_MAX_STATES], made[AB_UPDATE_MAX_STATES],
        kept[AB_UPDATE_MAX_STATES];
    double part[TERMS]; // terms, then the update; non-finite ones as 0
    bool there;
};

// Shared memory of a block.
struct shared_sums {
    double part[AB_UPDATE_BLOCK], lost[AB_UPDATE_BLOCK], lane[2][AB_UPDATE_LANES];
    unsigned count[2];
};
} // namespace

__device__ static float rounded(float x, int type) {
    return type == AB_ELEMENT_F32   ? x
           : type == AB_ELEMENT_F16 ? ab_f16_value(ab_f16_code(x))
                                    : ab_bf16_value(ab_bf16_code(x));
}

// ---- one element --------------------------------------------------------------------------------

__device__ static void find_parts(const counted_update &u, element *e) {
    double term[AB_F_TERMS];
    ab_f_terms(u.kind, u.row.value, e->grad, e->before, e->held, term);
    double sum = term[0];
    for (int t = 1; t < AB_TERM_EPS; t++)
        if (u.question.terms >> t & 1u) sum += term[t];
    for (int t = 0; t < AB_TERM_COUNT; t++)
        e->part[t] = u.question.terms >> t & 1u ? ab_finite_or_zero(term[t]) : 0.0;
    e->part[WHOLE] = ab_finite_or_zero(sum);
}

// Loads, updates and stores element i.
__device__ static void update_element(const counted_update &u, int64_t i, element *e) {
    e->there = i < u.n;
    if (!e->there) return;
    e->before = e->after = ab_span_at(u.weight, i);
    e->grad = ab_span_at(u.grad, i);
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
        e->held[k] = e->made[k] = u.state[k].data ? ab_span_at(u.state[k], i) : 0.0f;
    ab_f_update(u.kind, u.row.value, e->grad, &e->after, e->made);
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++) {
        e->kept[k] = rounded(e->made[k], u.state[k].type);
        if (u.shown[1 + k].data) ab_store(u.shown[1 + k].data, AB_ELEMENT_F32, i, e->made[k]);
        if (u.state[k].data) ab_store(u.state[k].data, u.state[k].type, i, e->made[k]);
    }
    if (u.shown[0].data) ab_store(u.shown[0].data, AB_ELEMENT_F32, i, e->after);
    e->stored = rounded(e->after, u.weight.type);
    ab_store(u.weight.data, u.weight.type, i, e->after);
    if (u.model.data) ab_store(u.model.data, u.model.type, i, e->after);
    find_parts(u, e);
}

__device__ static void count_in_histograms(const counted_update &u, const element &e, histograms *to) {
    const double change = e.part[WHOLE];
    if (change != 0.0)
        atomicAdd(&to->ratio[ab_ratio_bin(ab_bits_of(e.before), ab_bits_of(static_cast<float>(change)),
                                          u.precision, u.smallest)],
                  1u);
    if (change == 0.0 || e.before == 0.0f) return;
    const double ratio = fabs(static_cast<double>(e.before) / change);
    uint64_t bits;
    memcpy(&bits, &ratio, sizeof bits);
    const int bin = ab_size_bin(bits);
    atomicAdd(&to->size[bin], 1ull);
    if (e.stored == e.before) atomicAdd(&to->size_lost[bin], 1ull);
}

// ---- sums of a block ----------------------------------------------------------------------------

// Adds shared->part and shared->lost over their lanes, and the lanes in order. Results in lane[0][0] and
// lane[1][0], until the next call.
__device__ static void add_lanes(shared_sums *shared, int n) {
    const int which = threadIdx.x / AB_UPDATE_LANES, l = threadIdx.x % AB_UPDATE_LANES;
    __syncthreads();
    if (which < 2) {
        const double *from = which == 0 ? shared->part : shared->lost;
        double sum = 0.0;
        for (int i = l; i < n; i += AB_UPDATE_LANES) sum += from[i];
        shared->lane[which][l] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double sum = 0.0;
        for (int k = 0; k < AB_UPDATE_LANES; k++) sum += shared->lane[threadIdx.x][k];
        shared->lane[threadIdx.x][0] = sum;
    }
    __syncthreads();
}

// The account of cause c: nonzero and lost updates, and their energies.
__device__ static void settle(const counted_update &u, const element *e, int c, int n, shared_sums *shared,
                              ab_update_account *to) {
    unsigned nonzero = 0, lost = 0;
    if (threadIdx.x < 2) shared->count[threadIdx.x] = 0;
    for (int k = 0; k < EACH; k++) {
        if (!e[k].there) continue;
        const int at = k * THREADS + threadIdx.x;
        const double part = e[k].part[c];
        const float kept =
            c == WHOLE ? e[k].stored : rounded(e[k].before + static_cast<float>(part), u.weight.type);
        const bool same = kept == e[k].before;
        nonzero += part != 0.0;
        lost += same && part != 0.0;
        shared->part[at] = part * part;
        shared->lost[at] = same ? part * part : 0.0;
    }
    __syncthreads();
    if (nonzero) atomicAdd(&shared->count[0], nonzero);
    if (lost) atomicAdd(&shared->count[1], lost);
    add_lanes(shared, n);
    if (threadIdx.x == 0)
        *to = {shared->count[0], shared->count[1], shared->lane[0][0],
               shared->count[1] > 0 ? shared->lane[1][0] : 0.0};
    __syncthreads();
}

// Sum of (stored - before) * update; if it is not finite, of the finite differences, one by one.
__device__ static void sum_moved(const element *e, int n, shared_sums *shared, double *to) {
    for (int k = 0; k < EACH; k++) {
        const int at = k * THREADS + threadIdx.x;
        if (!e[k].there) continue;
        const double change = e[k].part[WHOLE],
                     difference = static_cast<double>(e[k].stored) - static_cast<double>(e[k].before);
        shared->part[at] = difference * change;
        shared->lost[at] = ab_finite_or_zero(difference) * change;
    }
    add_lanes(shared, n);
    if (threadIdx.x == 0) {
        double sum = shared->lane[0][0];
        if (!(sum - sum == 0)) {
            sum = 0.0;
            for (int i = 0; i < n; i++) sum += shared->lost[i];
        }
        *to = sum;
    }
    __syncthreads();
}

// The second moment v against the gradient.
__device__ static void judge_moment(const counted_update &u, const element *e, int n, shared_sums *shared,
                                    ab_moment_account *to) {
    const ab_update_question &q = u.question;
    unsigned stale = 0, below = 0, zero = 0, ratios = 0;
    for (int k = 0; k < EACH; k++) {
        if (!e[k].there) continue;
        const int s = q.second_moment;
        const double g = static_cast<double>(e[k].grad) + q.decay * static_cast<double>(e[k].before);
        const double v = static_cast<double>(e[k].made[s]) / q.correction;
        const bool counts = v > 0 && g - g == 0;
        stale += ab_moment_is_stale(q.beta2, static_cast<double>(e[k].held[s]), g,
                                    static_cast<double>(e[k].kept[s]));
        zero += v == 0 && g != 0;
        below += v > 0 && v < q.eps2;
        ratios += counts;
        shared->part[k * THREADS + threadIdx.x] = counts ? g * g / v : 0.0;
    }
    __syncthreads();
    if (stale) atomicAdd(reinterpret_cast<unsigned long long *>(&to->stale), 1ull * stale);
    if (below) atomicAdd(reinterpret_cast<unsigned long long *>(&to->below_eps), 1ull * below);
    if (zero) atomicAdd(reinterpret_cast<unsigned long long *>(&to->zero), 1ull * zero);
    if (ratios) atomicAdd(reinterpret_cast<unsigned long long *>(&to->ratios), 1ull * ratios);
    if (threadIdx.x == 0) {
        double sum = 0.0;
        for (int i = 0; i < n; i++) sum += shared->part[i];
        to->ratio = sum;
    }
    __syncthreads();
}

__device__ static bool is_subnormal(float x) {
    const unsigned magnitude = ab_bits_of(x) & 0x7fffffffu;
    return magnitude != 0 && magnitude < 0x00800000u;
}

__device__ static void count_subnormals(const counted_update &u, const element *e, ab_update_sums *to) {
    unsigned count[2 + AB_UPDATE_MAX_STATES] = {0};
    for (int k = 0; k < EACH; k++) {
        if (!e[k].there) continue;
        count[0] += is_subnormal(e[k].before);
        count[1] += is_subnormal(e[k].grad);
        for (int s = 0; s < AB_UPDATE_MAX_STATES; s++)
            count[2 + s] += u.state[s].data && is_subnormal(e[k].held[s]);
    }
    for (int c = 0; c < 2 + AB_UPDATE_MAX_STATES; c++)
        if (count[c]) atomicAdd(reinterpret_cast<unsigned long long *>(&to->subnormal[c]), 1ull * count[c]);
}

// The first element that became non-finite from finite values.
__device__ static void find_ill(const element *e, int64_t first, shared_sums *shared, ab_update_sums *to) {
    bool any = false;
    for (int k = 0; k < EACH; k++) {
        const bool ill =
            e[k].there && !ab_f_finite(e[k].stored) && ab_f_finite(e[k].before) && ab_f_finite(e[k].grad);
        shared->part[k * THREADS + threadIdx.x] = ill ? 1.0 : 0.0;
        any = any || ill;
    }
    if (threadIdx.x == 0) shared->count[0] = AB_UPDATE_BLOCK;
    if (!__syncthreads_or(any)) return;
    for (int k = 0; k < EACH; k++) {
        const unsigned at = static_cast<unsigned>(k) * THREADS + threadIdx.x;
        if (shared->part[at] != 0.0) atomicMin(&shared->count[0], at);
    }
    __syncthreads();
    for (int k = 0; k < EACH; k++) {
        const unsigned at = static_cast<unsigned>(k) * THREADS + threadIdx.x;
        if (shared->count[0] != at) continue;
        to->ill = first + at;
        to->before = e[k].before;
        to->grad = e[k].grad;
        to->after = e[k].after;
        to->stored = e[k].stored;
    }
}

__device__ static unsigned finite_magnitude(float x) {
    const unsigned magnitude = ab_bits_of(x) & 0x7fffffffu;
    return magnitude < 0x7f800000u ? magnitude : 0;
}

// The largest gradient of each row: of a block within one row by one thread of each warp.
__device__ static void find_largest(const counted_update &u, const element *e, int64_t first, int n) {
    const bool one_row = first / u.width == (first + n - 1) / u.width;
    unsigned most = 0;
    for (int k = 0; k < EACH; k++) {
        const unsigned own = e[k].there ? finite_magnitude(e[k].grad) : 0;
        most = own > most ? own : most;
        if (!one_row && own) atomicMax(&u.largest[(first + k * THREADS + threadIdx.x) / u.width], own);
    }
    if (!one_row) return;
    for (int by = 16; by > 0; by /= 2) {
        const unsigned other = __shfl_xor_sync(0xffffffffu, most, by);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0 && most) atomicMax(&u.largest[first / u.width], most);
}

// sums[block]: all zeros.
__global__ static void update_counted(counted_update u, ab_update_sums *sums, histograms *in) {
    __shared__ shared_sums shared;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * AB_UPDATE_BLOCK;
    const int64_t left = u.n - first;
    const int n = left < AB_UPDATE_BLOCK ? static_cast<int>(left) : static_cast<int>(AB_UPDATE_BLOCK);
    ab_update_sums *to = &sums[blockIdx.x];
    element e[EACH];
    if (threadIdx.x == 0) to->ill = -1;
    for (int k = 0; k < EACH; k++) {
        const int64_t i = first + k * THREADS + threadIdx.x;
        update_element(u, i, &e[k]);
        if (e[k].there && (i - first) % u.stride == 0) count_in_histograms(u, e[k], in);
    }
    settle(u, e, WHOLE, n, &shared, &to->cause[WHOLE]);
    for (int c = 0; c < AB_TERM_COUNT; c++)
        if (u.question.terms >> c & 1u) settle(u, e, c, n, &shared, &to->cause[c]);
    sum_moved(e, n, &shared, &to->moved);
    if (u.question.second_moment >= 0) judge_moment(u, e, n, &shared, &to->moment);
    count_subnormals(u, e, to);
    if (u.largest) find_largest(u, e, first, n);
    find_ill(e, first, &shared, to);
}

// One thread per run.
__global__ static void sum_runs(const ab_update_sums *sums, int64_t blocks, ab_update_sums *run,
                                int64_t runs) {
    const int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r >= runs) return;
    ab_update_sums all = sums[r * AB_UPDATE_RUN];
    for (int64_t b = r * AB_UPDATE_RUN + 1; b < (r + 1) * AB_UPDATE_RUN && b < blocks; b++)
        ab_update_sums_add(&all, &sums[b]);
    run[r] = all;
}

// ---- interface ----------------------------------------------------------------------------------

static bool all_known(const counted_update &u) {
    bool known =
        u.weight.type != AB_ELEMENT_NONE && u.grad.type != AB_ELEMENT_NONE && u.model.type != AB_ELEMENT_NONE;
    for (const ab_span &state : u.state) known = known && state.type != AB_ELEMENT_NONE;
    return known;
}

static counted_update update_of(const ab_update_item *item, int kind, const ab_update_row *row,
                                const ab_update_question *question) {
    counted_update u = {};
    u.weight = ab_cuda_span(item->weight);
    u.grad = ab_cuda_span(item->grad);
    u.model = ab_cuda_optional(item->model);
    for (int k = 0; k < AB_UPDATE_MAX_STATES; k++) u.state[k] = ab_cuda_optional(item->state[k]);
    u.n = ab_cuda_count(item->weight);
    u.kind = kind;
    u.precision = item->weight->format->precision;
    u.smallest = item->weight->format->emin + 127;
    u.stride = 1;
    if (u.n >= AB_RATIO_LARGE) u.stride = AB_RATIO_STRIDE;
    u.row = *row;
    u.question = *question;
    return u;
}

static unsigned blocks_of(int64_t n, int threads) {
    return static_cast<unsigned>((n + threads - 1) / threads);
}

// Launches everything; results in run[runs] and *in.
static ab_status launch(const counted_update &u, ab_update_sums *sums, ab_update_sums *run, histograms *in) {
    cudaStream_t stream = ab_cuda_context()->stream;
    const int64_t blocks = blocks_of(u.n, AB_UPDATE_BLOCK), runs = ab_update_runs(u.n);
    AB_CUDA_TRY(cudaMemsetAsync(in, 0, sizeof *in, stream));
    AB_CUDA_TRY(cudaMemsetAsync(sums, 0, static_cast<size_t>(blocks) * sizeof *sums, stream));
    AB_CUDA_LAUNCH(update_counted, static_cast<unsigned>(blocks), THREADS, 0, stream, u, sums, in);
    AB_TRY(ab_cuda_launched("update_counted"));
    AB_CUDA_LAUNCH(sum_runs, blocks_of(runs, WARP_RUNS), WARP_RUNS, 0, stream, sums, blocks, run, runs);
    return ab_cuda_launched("sum_runs");
}

static ab_census *wanted(const ab_update_counts *counts, int k) {
    return k == 0 ? counts->weight : counts->state[k - 1];
}

static ab_span stored(const counted_update &u, int k) { return k == 0 ? u.weight : u.state[k - 1]; }

// Whether what is censused is not what is stored.
static bool differs(const counted_update &u, const ab_update_counts *counts, int k) {
    return wanted(counts, k) && stored(u, k).type != AB_ELEMENT_F32;
}

// fp32 memory for those values.
static ab_status make_shown(const ab_update_counts *counts, counted_update *u) {
    int all = 0, next = 0;
    float *values;
    for (int k = 0; k <= AB_UPDATE_MAX_STATES; k++) all += differs(*u, counts, k);
    if (all == 0) return AB_OK;
    AB_TRY(ab_cuda_observed_values(all * u->n, &values));
    for (int k = 0; k <= AB_UPDATE_MAX_STATES; k++)
        if (differs(*u, counts, k)) u->shown[k] = ab_cuda_span_of(values + next++ * u->n, AB_ELEMENT_F32);
    return AB_OK;
}

static ab_status count_shown_values(const counted_update &u, const ab_update_counts *counts) {
    for (int k = 0; k <= AB_UPDATE_MAX_STATES; k++) {
        const ab_span values = u.shown[k].data ? u.shown[k] : stored(u, k);
        if (wanted(counts, k)) AB_TRY(ab_cuda_count_values(values, u.n, wanted(counts, k)));
    }
    return AB_OK;
}

ab_status ab_cuda_update_counted(const ab_update_item *item, int kind, const ab_update_row *row,
                                 const ab_update_question *question, ab_update_counts *counts) {
    counted_update u = update_of(item, kind, row, question);
    const size_t row_bytes = static_cast<size_t>(counts->rows) * sizeof(unsigned);
    const size_t blocks = blocks_of(u.n, AB_UPDATE_BLOCK), runs = static_cast<size_t>(ab_update_runs(u.n));
    cudaStream_t stream = ab_cuda_context()->stream;
    histograms host;
    void *block;
    if (ab_f_needs_norms(kind) || !all_known(u) || u.n == 0)
        return ab_fail(AB_UNAVAILABLE, "no counted CUDA update of this kind");
    AB_TRY(ab_cuda_kept(AB_CUDA_COUNTS, sizeof host + (blocks + runs) * sizeof(ab_update_sums) + row_bytes,
                        &block));
    histograms *in = static_cast<histograms *>(block);
    ab_update_sums *sums = reinterpret_cast<ab_update_sums *>(in + 1), *run = sums + blocks;
    AB_TRY(make_shown(counts, &u));
    if (counts->rows > 0) {
        u.largest = reinterpret_cast<unsigned *>(run + runs);
        u.width = u.n / counts->rows;
        AB_CUDA_TRY(cudaMemsetAsync(u.largest, 0, row_bytes, stream));
    }
    AB_TRY(launch(u, sums, run, in));
    if (counts->rows > 0)
        AB_CUDA_TRY(cudaMemcpyAsync(counts->largest, u.largest, row_bytes, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaMemcpyAsync(&host, in, sizeof host, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaMemcpyAsync(counts->run, run, runs * sizeof *run, cudaMemcpyDeviceToHost, stream));
    AB_CUDA_TRY(cudaStreamSynchronize(stream));
    counts->terms = question->terms;
    for (int i = 0; i < AB_RATIOS; i++) counts->ratio[i] = host.ratio[i];
    for (int i = 0; i < AB_SIZES; i++) {
        counts->size[i] = static_cast<int64_t>(host.size[i]);
        counts->size_lost[i] = static_cast<int64_t>(host.size_lost[i]);
    }
    return count_shown_values(u, counts);
}
