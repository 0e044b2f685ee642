// Products: see cuda_gemm.cuh. Row-major matrices are column-major ones transposed: c^T = op(b)^T op(a)^T.
//
// The library's algorithm is the first that the heuristic returns for the shape, or the one of a given place,
// so that a shape always gives the same bits; partial sums of split products are fp32, never the output's
// format. fp32 products are IEEE unless TF32 is enabled for the run.
#include "kernels/core/text.h"
#include "kernels/cuda/cuda_gemm.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

enum { ALIGNMENT = 64, MOST_WORKSPACE = 32 << 20, MOST_KNOWN = 256 };
enum { TILE = 64, DEPTH = 16, SIDE = 4, TILE_THREADS = 256 };

ab_cuda_gemm ab_cuda_gemm_of(int64_t rows, int64_t columns, int64_t inner, int type) {
    ab_cuda_gemm g;
    memset(&g, 0, sizeof g); // compared bytewise
    g.rows = rows;
    g.columns = columns;
    g.inner = g.lda = inner;
    g.ldb = g.ldc = columns;
    g.batch = 1;
    g.type = g.type_c = type;
    return g;
}

// ---- the library's ------------------------------------------------------------------------------

static cudaDataType_t data_type(int type) {
    return type == AB_ELEMENT_F32 ? CUDA_R_32F : type == AB_ELEMENT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

void ab_cuda_gemm_destroy(ab_cuda_gemm_plan *p) {
    if (!p) return;
    if (p->matmul) (void)cublasLtMatmulDescDestroy(p->matmul);
    if (p->a) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)cublasLtMatrixLayoutDestroy(p->c);
    free(p);
}

// rows x columns as stored, row-major.
static ab_status layout(cublasLtMatrixLayout_t *to, int type, int64_t rows, int64_t columns, int64_t step,
                        int64_t batch, int64_t batch_step) {
    const int32_t count = static_cast<int32_t>(batch);
    AB_BLAS_TRY(cublasLtMatrixLayoutCreate(to, data_type(type), static_cast<uint64_t>(columns),
                                           static_cast<uint64_t>(rows), step));
    if (batch == 1) return AB_OK;
    AB_BLAS_TRY(
        cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    AB_BLAS_TRY(cublasLtMatrixLayoutSetAttribute(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                 &batch_step, sizeof batch_step));
    return AB_OK;
}

static ab_status layouts(ab_cuda_gemm_plan *p) {
    const ab_cuda_gemm *g = &p->shape;
    AB_TRY(layout(&p->b, g->type, g->transpose_b ? g->columns : g->inner,
                  g->transpose_b ? g->inner : g->columns, g->ldb, g->batch, g->step_b));
    AB_TRY(layout(&p->a, g->type, g->transpose_a ? g->inner : g->rows, g->transpose_a ? g->rows : g->inner,
                  g->lda, g->batch, g->step_a));
    return layout(&p->c, g->type_c, g->rows, g->columns, g->ldc, g->batch, g->step_c);
}

static ab_status describe_product(ab_cuda_gemm_plan *p) {
    const ab_cuda_gemm *g = &p->shape;
    const cublasOperation_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute = g->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasLtEpilogue_t epilogue = g->bias && g->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                        : g->relu          ? CUBLASLT_EPILOGUE_RELU
                                                           : CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = data_type(g->type_c);
    AB_BLAS_TRY(cublasLtMatmulDescCreate(&p->matmul, compute, CUDA_R_32F));
    AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    AB_BLAS_TRY(
        cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (!g->bias && !g->relu) return AB_OK;
    AB_BLAS_TRY(
        cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (!g->bias) return AB_OK;
    AB_BLAS_TRY(
        cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    return AB_OK;
}

static ab_status set_preference(cublasLtMatmulPreference_t preference) {
    const size_t workspace = MOST_WORKSPACE;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, alignment = ALIGNMENT;
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    AB_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &workspace, sizeof workspace));
    AB_BLAS_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                     &reduction, sizeof reduction));
    for (cublasLtMatmulPreferenceAttributes_t attribute : aligned)
        AB_BLAS_TRY(
            cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment));
    return AB_OK;
}

// *found is set to 0 if the library does not support the shape, or has no algorithm in that place.
static ab_status ask(ab_cuda_gemm_plan *p, int *found) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t results[AB_CUDA_GEMM_CHOICES] = {};
    const int place = p->shape.choice;
    *found = 0;
    AB_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    ab_status status = set_preference(preference);
    if (status == AB_OK) {
        cublasStatus_t code =
            cublasLtMatmulAlgoGetHeuristic(ab_cuda_context()->blas, p->matmul, p->b, p->a, p->c, p->c,
                                           preference, place + 1, results, found);
        if (code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE)
            *found = 0;
        else
            status = ab_cuda_check_blas(code, "cublasLtMatmulAlgoGetHeuristic");
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (status != AB_OK || *found <= place || results[place].state != CUBLAS_STATUS_SUCCESS) *found = 0;
    p->algorithm = results[place].algo;
    p->workspace_bytes = results[place].workspaceSize;
    return status;
}

// Where TF32 is allowed, the library may still choose an algorithm that does not round operands (seen on an
// H100).
static bool rounds_to_tf32(const ab_cuda_gemm_plan *p) {
    uint64_t flags = 0;
    size_t written = 0;
    cublasStatus_t code = cublasLtMatmulAlgoCapGetAttribute(
        &p->algorithm, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags, &written);
    return p->shape.tf32 && code == CUBLAS_STATUS_SUCCESS &&
           (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32);
}

static void describe_algorithm(ab_cuda_gemm_plan *p) {
    p->tf32 = rounds_to_tf32(p);
    int id = -1, tile = -1, stages = -1, split = 0;
    size_t written = 0;
    (void)cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id,
                                               &written);
    (void)cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                               sizeof tile, &written);
    (void)cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages,
                                               sizeof stages, &written);
    (void)cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                               sizeof split, &written);
    ab_text_show(p->text, sizeof p->text, "cublaslt:algo%d,tile%d,stages%d,split%d%s%s%s", id, tile, stages,
                 split, p->shape.bias ? ",bias" : "", p->shape.relu ? ",relu" : "", p->tf32 ? ",tf32" : "");
}

namespace {
// Cache of queried shapes: equal layers query once.
struct known_shape {
    ab_cuda_gemm shape;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool found;
};
} // namespace

static ab_status choose(ab_cuda_gemm_plan *p, int *found) {
    static known_shape known[MOST_KNOWN];
    static int count;
    for (int i = 0; i < count; i++) {
        if (memcmp(&known[i].shape, &p->shape, sizeof p->shape) != 0) continue;
        p->algorithm = known[i].algorithm;
        p->workspace_bytes = known[i].workspace_bytes;
        *found = known[i].found;
        return AB_OK;
    }
    AB_TRY(ask(p, found));
    if (count < MOST_KNOWN) known[count++] = {p->shape, p->algorithm, p->workspace_bytes, *found > 0};
    return AB_OK;
}

ab_status ab_cuda_gemm_make(const ab_cuda_gemm *shape, ab_cuda_gemm_plan **plan) {
    int found = 0;
    *plan = nullptr;
    if (shape->batch > 0x7fffffff) return AB_OK;
    AB_TRY(ab_cuda_start());
    ab_cuda_gemm_plan *p = static_cast<ab_cuda_gemm_plan *>(calloc(1, sizeof *p));
    if (!p) return ab_fail(AB_NO_MEMORY, "matrix product: out of memory");
    memcpy(&p->shape, shape, sizeof *shape);
    ab_status status = describe_product(p);
    if (status == AB_OK) status = layouts(p);
    if (status == AB_OK) status = choose(p, &found);
    if (status != AB_OK || !found) {
        ab_cuda_gemm_destroy(p);
        return status == AB_UNAVAILABLE ? AB_OK : status;
    }
    describe_algorithm(p);
    *plan = p;
    return AB_OK;
}

// The library says whether the algorithm does it, and with what workspace.
static ab_status check_algorithm(ab_cuda_gemm_plan *p, bool *works) {
    cublasLtMatmulHeuristicResult_t result = {};
    cublasStatus_t code = cublasLtMatmulAlgoCheck(ab_cuda_context()->blas, p->matmul, p->b, p->a, p->c, p->c,
                                                  &p->algorithm, &result);
    *works = code == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= MOST_WORKSPACE;
    p->workspace_bytes = result.workspaceSize;
    return AB_OK;
}

ab_status ab_cuda_gemm_with_relu(const ab_cuda_gemm_plan *plain, ab_cuda_gemm_plan **plan) {
    bool works = false;
    *plan = nullptr;
    ab_cuda_gemm_plan *p = static_cast<ab_cuda_gemm_plan *>(calloc(1, sizeof *p));
    if (!p) return ab_fail(AB_NO_MEMORY, "matrix product: out of memory");
    memcpy(&p->shape, &plain->shape, sizeof p->shape);
    p->shape.relu = true;
    p->algorithm = plain->algorithm;
    ab_status status = describe_product(p);
    if (status == AB_OK) status = layouts(p);
    if (status == AB_OK) status = check_algorithm(p, &works);
    if (status != AB_OK || !works) {
        ab_cuda_gemm_destroy(p);
        return status == AB_UNAVAILABLE ? AB_OK : status;
    }
    describe_algorithm(p);
    *plan = p;
    return AB_OK;
}

ab_status ab_cuda_gemm_run(ab_cuda_gemm_plan *p, const void *a, const void *b, void *c, float alpha,
                           float beta, const void *bias, void *workspace) {
    if (p->shape.bias)
        AB_BLAS_TRY(
            cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    return ab_cuda_check_blas(cublasLtMatmul(ab_cuda_context()->blas, p->matmul, &alpha, b, p->b, a, p->a,
                                             &beta, c, p->c, c, p->c, &p->algorithm, workspace,
                                             p->workspace_bytes, ab_cuda_context()->stream),
                              "cublasLtMatmul");
}

// ---- our own tiles ------------------------------------------------------------------------------

namespace {
struct tile {
    float at[DEPTH][TILE + 1];
};
} // namespace

// Loads 64 rows (or columns) by 16 of the inner dimension of an operand, zero-padded. Adjacent threads
// read along the dimension with the smaller step.
__device__ static void load_tile(tile *t, ab_span from, int64_t base, int64_t first, int64_t end,
                                 int64_t step, int64_t k0, int64_t inner, int64_t inner_step) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += TILE_THREADS) {
        bool along = inner_step < step;
        int place = along ? e / DEPTH : e % TILE, k = along ? e % DEPTH : e / TILE;
        bool inside = first + place < end && k0 + k < inner;
        t->at[k][place] =
            inside ? ab_span_at(from, base + (first + place) * step + (k0 + k) * inner_step) : 0.0f;
    }
}

__device__ static void add_tile(const tile *a, const tile *b, float sum[SIDE][SIDE]) {
    int row = threadIdx.x / 16 * SIDE, column = threadIdx.x % 16 * SIDE;
    for (int k = 0; k < DEPTH; k++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = fmaf(a->at[k][row + i], b->at[k][column + j], sum[i][j]);
}

__device__ static void store_tile(const ab_cuda_tiles &p, int64_t base, int64_t row0, int64_t column0,
                                  const float sum[SIDE][SIDE]) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            int64_t row = row0 + threadIdx.x / 16 * SIDE + i, column = column0 + threadIdx.x % 16 * SIDE + j;
            if (row >= p.rows || column >= p.columns) continue;
            int64_t at = base + row * p.c_row + column;
            float x = p.alpha * sum[i][j];
            if (p.beta != 0.0f) x += p.beta * ab_span_at(p.c, at);
            ab_store(p.c.data, p.c.type, at, x);
        }
}

__global__ static void multiply_tiles(ab_cuda_tiles p) {
    __shared__ tile a, b;
    int64_t column_tiles = (p.columns + TILE - 1) / TILE;
    int64_t row0 = blockIdx.x / column_tiles * TILE, column0 = blockIdx.x % column_tiles * TILE;
    for (int64_t item = blockIdx.y; item < p.items; item += gridDim.y) {
        float sum[SIDE][SIDE] = {};
        for (int64_t s = 0; s < p.sums; s++) {
            int64_t from_a = ab_strided_offset(&p.a_item, item) + ab_strided_offset(&p.a_sum, s);
            int64_t from_b = ab_strided_offset(&p.b_item, item) + ab_strided_offset(&p.b_sum, s);
            for (int64_t k = 0; k < p.inner; k += DEPTH) {
                load_tile(&a, p.a, from_a, row0, p.rows, p.a_row, k, p.inner, p.a_inner);
                load_tile(&b, p.b, from_b, column0, p.columns, p.b_column, k, p.inner, p.b_inner);
                __syncthreads();
                add_tile(&a, &b, sum);
                __syncthreads();
            }
        }
        store_tile(p, ab_strided_offset(&p.c_item, item), row0, column0, sum);
    }
}

static ab_strided one_step(int64_t count, int64_t step) {
    ab_strided view = {1, {count}, {step}};
    return view;
}

ab_cuda_tiles ab_cuda_tiles_of(const ab_cuda_gemm *g, ab_span a, ab_span b, ab_span c, float alpha,
                               float beta) {
    ab_cuda_tiles p = {};
    p.a = a;
    p.b = b;
    p.c = c;
    p.rows = g->rows;
    p.columns = g->columns;
    p.inner = g->inner;
    p.a_row = g->transpose_a ? 1 : g->lda;
    p.a_inner = g->transpose_a ? g->lda : 1;
    p.b_inner = g->transpose_b ? 1 : g->ldb;
    p.b_column = g->transpose_b ? g->ldb : 1;
    p.c_row = g->ldc;
    p.items = g->batch;
    p.sums = 1;
    p.a_item = one_step(g->batch, g->step_a);
    p.b_item = one_step(g->batch, g->step_b);
    p.c_item = one_step(g->batch, g->step_c);
    p.a_sum = p.b_sum = one_step(1, 0);
    p.alpha = alpha;
    p.beta = beta;
    return p;
}

ab_status ab_cuda_tiles_run(const ab_cuda_tiles *p) {
    int64_t tiles = (p->rows + TILE - 1) / TILE * ((p->columns + TILE - 1) / TILE);
    if (tiles > 0x7fffffff) return ab_fail(AB_UNAVAILABLE, "matrix product: more tiles than a grid has");
    dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(p->items < 65535 ? p->items : 65535));
    AB_CUDA_LAUNCH(multiply_tiles, grid, TILE_THREADS, 0, ab_cuda_context()->stream, *p);
    return ab_cuda_launched("product_tiles");
}

ab_status ab_cuda_multiply(ab_cuda_gemm_plan *plan, const ab_cuda_gemm *shape, void *a, void *b, void *c,
                           float alpha, float beta, void *workspace) {
    if (plan) return ab_cuda_gemm_run(plan, a, b, c, alpha, beta, nullptr, workspace);
    ab_cuda_tiles tiles =
        ab_cuda_tiles_of(shape, ab_cuda_span_of(a, shape->type), ab_cuda_span_of(b, shape->type),
                         ab_cuda_span_of(c, shape->type_c), alpha, beta);
    return ab_cuda_tiles_run(&tiles);
}
