// cuBLASLt of the emulation: checks what the caller describes and gives, then computes from the definition,
// in double, rounded once. Matrices are column-major, as in the library.
#include "cublasLt.h"

#include "inside.h"

#include "kernels/ops/element.h"

#include <vector>

using emulated::mistake;

enum live { ALIVE = 0x600d, DEAD = 0xdead };

struct emulated_blas {
    live state;
};
struct emulated_matmul {
    live state;
    cublasComputeType_t compute;
    int transpose[2];
    int epilogue, bias_type;
    const void *bias;
};
struct emulated_layout {
    live state;
    cudaDataType_t type;
    int64_t rows, columns, step, batch, batch_step;
};
struct emulated_preference {
    live state;
    size_t workspace;
    unsigned reduction;
    unsigned alignment[4];
};

// ---- descriptors --------------------------------------------------------------------------------

size_t cublasLtGetVersion() { return 0; }

const char *cublasLtGetStatusString(cublasStatus_t code) {
    return code == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : code == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = new emulated_blas{ALIVE};
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> static bool is_alive(const T *object, const char *what) {
    if (object && object->state == ALIVE) return true;
    mistake("cuBLASLt: %s was destroyed or never made", what);
    return false;
}

// Destroyed objects are kept, so that a later use is found.
template <typename T> static cublasStatus_t bury(T *object, const char *what) {
    if (!is_alive(object, what)) return CUBLAS_STATUS_INVALID_VALUE;
    object->state = DEAD;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> static cublasStatus_t set(T *to, const void *value, size_t bytes) {
    if (bytes != sizeof *to || !value) {
        mistake("cuBLASLt: an attribute of %zu bytes, expected %zu", bytes, sizeof *to);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (scale != CUDA_R_32F) mistake("cuBLASLt: alpha and beta are floats here, found type %d", scale);
    *desc = new emulated_matmul{ALIVE, compute, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
    if (!is_alive(desc, "a product's description")) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&desc->transpose[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->transpose[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(&desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->bias, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return bury(desc, "a product's description");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t step) {
    *layout = new emulated_layout{
        ALIVE, type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), step, 1, 0};
    if (step < static_cast<int64_t>(rows))
        mistake("cuBLASLt: a leading dimension of %lld for %lld rows", static_cast<long long>(step),
                static_cast<long long>(rows));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes) {
    if (!is_alive(layout, "a layout")) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        return set(&layout->batch_step, value, bytes);
    int32_t count = 1;
    cublasStatus_t status = set(&count, value, bytes);
    layout->batch = count;
    return status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return bury(layout, "a layout"); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = new emulated_preference{ALIVE, 0, ~0u, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    if (!is_alive(preference, "a preference")) return CUBLAS_STATUS_INVALID_VALUE;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&preference->reduction, value, bytes);
    return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return bury(preference, "a preference");
}

// ---- what is asked ------------------------------------------------------------------------------

struct product {
    emulated_matmul desc;
    emulated_layout a, b, c;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
};

static bool supported_types(const product &p) {
    bool half = p.a.type == CUDA_R_16F || p.a.type == CUDA_R_16BF;
    bool result = p.c.type == p.a.type || (half && p.c.type == CUDA_R_32F);
    return p.a.type == p.b.type && (half || p.a.type == CUDA_R_32F) && result;
}

// Whether the description is one that the library takes; what contradicts itself is a mistake.
static bool make_product(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, product *p) {
    if (!is_alive(desc, "a product's description") || !is_alive(a, "the layout of A") ||
        !is_alive(b, "the layout of B") || !is_alive(c, "the layout of C") || !is_alive(d, "the layout of D"))
        return false;
    *p = {*desc, *a, *b, *c, c->rows, c->columns, 0, desc->transpose[0] != 0, desc->transpose[1] != 0};
    int64_t m = p->transpose_a ? a->columns : a->rows, k = p->transpose_a ? a->rows : a->columns;
    int64_t n = p->transpose_b ? b->rows : b->columns, k_b = p->transpose_b ? b->columns : b->rows;
    p->k = k;
    if (m != p->m || n != p->n || k != k_b || a->batch != c->batch || b->batch != c->batch)
        mistake("cuBLASLt: shapes [%lld, %lld] [%lld, %lld] do not give [%lld, %lld], batches %lld %lld %lld",
                (long long)m, (long long)k, (long long)k_b, (long long)n, (long long)p->m, (long long)p->n,
                (long long)a->batch, (long long)b->batch, (long long)c->batch);
    if (c->batch > 1 && c->batch_step < c->step * (c->columns - 1) + c->rows)
        mistake("cuBLASLt: results of a batch overlap");
    if (!supported_types(*p)) return false;
    if (desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a->type != CUDA_R_32F)
        mistake("cuBLASLt: TF32 of operands that are not fp32");
    bool biased = (desc->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    if (biased && desc->bias_type != c->type && desc->bias_type != -1)
        mistake("cuBLASLt: a bias of type %d for a result of type %d", desc->bias_type, c->type);
    return m > 0 && n > 0 && k > 0;
}

// What an algorithm was chosen for: all but the epilogue, which cublasLtMatmulAlgoCheck may be asked for.
static uint64_t digest(const product &p) {
    const int64_t values[] = {p.desc.compute,
                              p.a.type,
                              p.c.type,
                              p.m,
                              p.n,
                              p.k,
                              p.a.step,
                              p.b.step,
                              p.c.step,
                              p.a.batch,
                              p.a.batch_step,
                              p.b.batch_step,
                              p.c.batch_step,
                              p.transpose_a,
                              p.transpose_b};
    uint64_t h = 14695981039346656037u;
    for (int64_t v : values) h = (h ^ static_cast<uint64_t>(v)) * 1099511628211u;
    return h;
}

// Places in an algorithm's data; alignments of A to D; whether operands are rounded to TF32.
enum { DIGEST, WORKSPACE, ALIGNMENT, TF32 = ALIGNMENT + 4 };

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    product p;
    *found = 0;
    if (!is_alive(handle, "the handle") || !is_alive(preference, "the preference") || wanted < 1)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!make_product(desc, a, b, c, d, &p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    size_t workspace = 512 + static_cast<size_t>(p.m % 7) * 256;
    if (workspace > preference->workspace) workspace = 0;
    if (p.c.type != CUDA_R_32F && (preference->reduction & ~unsigned(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)))
        mistake("cuBLASLt: partial sums may be rounded to the result's type");
    results[0] = {};
    results[0].algo.data[DIGEST] = digest(p);
    results[0].algo.data[WORKSPACE] = workspace;
    results[0].algo.data[TF32] = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    for (int i = 0; i < 4; i++) results[0].algo.data[ALIGNMENT + i] = preference->alignment[i];
    results[0].workspaceSize = workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    product p;
    if (!is_alive(handle, "the handle") || !make_product(desc, a, b, c, d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->data[DIGEST] != digest(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = {*algo, static_cast<size_t>(algo->data[WORKSPACE]), CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t, void *value, size_t bytes,
                                                 size_t *written) {
    const uint64_t flags = algo->data[TF32] ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 : 0;
    *written = sizeof flags;
    if (bytes != sizeof flags) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &flags, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void *value,
                                                    size_t bytes, size_t *written) {
    int zero = 0;
    *written = sizeof zero;
    if (bytes == sizeof zero) memcpy(value, &zero, bytes);
    return bytes == sizeof zero ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// ---- the product --------------------------------------------------------------------------------

static int element_type(cudaDataType_t type) {
    return type == CUDA_R_32F ? AB_ELEMENT_F32 : type == CUDA_R_16F ? AB_ELEMENT_F16 : AB_ELEMENT_BF16;
}
static int64_t element_bytes(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

static const char *column_of(const void *matrix, const emulated_layout &l, int64_t item, int64_t column) {
    return static_cast<const char *>(matrix) +
           (item * l.batch_step + column * l.step) * element_bytes(l.type);
}

// A matrix of one item, as rows of `inner` values: of op(A)'s rows or op(B)'s columns.
static std::vector<float> widen(const void *matrix, const emulated_layout &l, int64_t item, bool by_columns,
                                bool tf32, const char *who) {
    std::vector<float> out(static_cast<size_t>(l.rows * l.columns));
    for (int64_t c = 0; c < l.columns; c++) {
        const char *column = column_of(matrix, l, item, c);
        emulated::memory_read(column, static_cast<size_t>(l.rows * element_bytes(l.type)), who);
        for (int64_t r = 0; r < l.rows; r++) {
            float x = ab_load(column, element_type(l.type), r);
            out[static_cast<size_t>(by_columns ? c * l.rows + r : r * l.columns + c)] =
                tf32 ? emulated::rounded_to_tf32(x) : x;
        }
    }
    return out;
}

// What the library does with NaN is not documented.
static double relu(double x) {
    if (x != x) return emulated::options().relu_drops_nan ? 0.0 : x;
    return x > 0.0 ? x : 0.0;
}

struct scalars {
    float alpha, beta;
};

static double rounded(int type, double x) {
    uint32_t room = 0;
    ab_store(&room, type, 0, static_cast<float>(x));
    return static_cast<double>(ab_load(&room, type, 0));
}

static void multiply_item(const product &p, int64_t item, scalars s, const void *a, const void *b,
                          const void *c, void *d) {
    bool tf32 = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<float> left = widen(a, p.a, item, p.transpose_a, tf32, "cublasLtMatmul, A");
    std::vector<float> right = widen(b, p.b, item, !p.transpose_b, tf32, "cublasLtMatmul, B");
    int type = element_type(p.c.type);
    size_t bytes = static_cast<size_t>(p.m * element_bytes(p.c.type));
    if (p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
        emulated::memory_read(p.desc.bias, bytes, "cublasLtMatmul, bias");
    for (int64_t n = 0; n < p.n; n++) {
        const char *from = column_of(c, p.c, item, n);
        char *to = const_cast<char *>(column_of(d, p.c, item, n));
        if (s.beta != 0.0f) emulated::memory_read(from, bytes, "cublasLtMatmul, C");
        emulated::memory_write(to, bytes, "cublasLtMatmul, D");
        for (int64_t m = 0; m < p.m; m++) {
            const float *x = &left[static_cast<size_t>(m * p.k)], *y = &right[static_cast<size_t>(n * p.k)];
            double sum = 0.0;
            for (int64_t k = 0; k < p.k; k++) sum += static_cast<double>(x[k]) * static_cast<double>(y[k]);
            sum *= static_cast<double>(s.alpha);
            if (s.beta != 0.0f)
                sum += static_cast<double>(s.beta) * static_cast<double>(ab_load(from, type, m));
            if (p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS) {
                if (emulated::options().bias_rounds_twice) sum = rounded(type, sum);
                sum += static_cast<double>(ab_load(p.desc.bias, type, m));
            }
            if (p.desc.epilogue & CUBLASLT_EPILOGUE_RELU) sum = relu(sum);
            ab_store(to, type, m, static_cast<float>(sum));
        }
    }
}

static void check_alignment(const void *at, uint64_t alignment, const char *who) {
    if (reinterpret_cast<uintptr_t>(at) % alignment)
        mistake("cublasLtMatmul: %s at %p, the algorithm was chosen for an alignment of %llu", who, at,
                static_cast<unsigned long long>(alignment));
}

static bool overlaps(const void *workspace, size_t bytes, const void *matrix, const emulated_layout &l) {
    const char *first = static_cast<const char *>(matrix);
    const char *end = column_of(matrix, l, l.batch - 1, l.columns - 1) + l.rows * element_bytes(l.type);
    const char *w = static_cast<const char *>(workspace);
    return bytes > 0 && w < end && first < w + bytes;
}

static void check_call(const product &p, const void *a, const void *b, const void *c, void *d,
                       const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes) {
    if (!algo || algo->data[DIGEST] != digest(p))
        mistake("cublasLtMatmul: the algorithm was chosen for another product");
    if (bytes < algo->data[WORKSPACE])
        mistake("cublasLtMatmul: a workspace of %zu bytes, the algorithm needs %llu", bytes,
                static_cast<unsigned long long>(algo->data[WORKSPACE]));
    check_alignment(a, algo->data[ALIGNMENT], "A");
    check_alignment(b, algo->data[ALIGNMENT + 1], "B");
    check_alignment(c, algo->data[ALIGNMENT + 2], "C");
    check_alignment(d, algo->data[ALIGNMENT + 3], "D");
    if (bytes) check_alignment(workspace, 16, "the workspace");
    if (overlaps(workspace, bytes, a, p.a) || overlaps(workspace, bytes, b, p.b) ||
        overlaps(workspace, bytes, d, p.c))
        mistake("cublasLtMatmul: the workspace overlaps a matrix");
    if ((p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS) && !p.desc.bias)
        mistake("cublasLtMatmul: a bias without a pointer");
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    product p;
    if (!is_alive(handle, "the handle") || !make_product(desc, layout_a, layout_b, layout_c, layout_d, &p))
        return CUBLAS_STATUS_INVALID_VALUE;
    const scalars s = {*static_cast<const float *>(alpha), *static_cast<const float *>(beta)};
    check_call(p, a, b, c, d, algo, workspace, workspace_bytes);
    emulated::enqueue(stream, [=] {
        emulated::memory_forget(workspace, workspace_bytes, "cublasLtMatmul, workspace");
        for (int64_t item = 0; item < p.c.batch; item++) multiply_item(p, item, s, a, b, c, d);
    });
    return CUBLAS_STATUS_SUCCESS;
}
