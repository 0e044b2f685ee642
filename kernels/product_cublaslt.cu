// Matrix products through cuBLASLt: fp32 sums, one rounding, the bias added before it. Row-major matrices are column-major ones
// transposed: out^T [O, N] = W [O, F] in^T [F, N].
//
// The algorithm is the first that the heuristics name for the shape, so that a shape always gives the same bits; partial sums of
// split products are fp32, never the output's format. fp32 products are IEEE unless the run asked for TF32.
#include "kernels/product_cuda.cuh"

#include <cstdio>
#include <cstdlib>

enum { ALIGNMENT = 64, MOST_WORKSPACE = 32 << 20 };

struct blas_product {
    ab_cuda_product base; // first
    ab_pass_kind kind;
    bool bias, tf32;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
};

static cudaDataType_t data_type(int type) {
    return type == AB_ELEMENT_F32 ? CUDA_R_32F : type == AB_ELEMENT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static void destroy(ab_cuda_product *base) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    if (!p) return;
    if (p->matmul) (void)cublasLtMatmulDescDestroy(p->matmul);
    if (p->a) (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->d) (void)cublasLtMatrixLayoutDestroy(p->d);
    free(p);
}

static ab_status run(ab_cuda_product *base, const ab_cuda_operands *o) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    const float one = 1.0f, zero = 0.0f;
    bool weights = p->kind == AB_PASS_BACKWARD_WEIGHTS;
    const void *a = weights ? o->in : o->weights;
    const void *b = p->kind == AB_PASS_FORWARD ? o->in : o->dout;
    void *d = p->kind == AB_PASS_FORWARD ? o->out : weights ? o->dweight : o->din;
    if (p->bias)
        AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias,
                                                   sizeof o->bias));
    return ab_cuda_check_blas(cublasLtMatmul(ab_cuda_get()->blas, p->matmul, &one, a, p->a, b, p->b, &zero, d,
                                             p->d, d, p->d, &p->algorithm, o->workspace,
                                             p->base.workspace_bytes, ab_cuda_get()->stream),
                              "cublasLtMatmul");
}

// m x n = (m x k) (k x n), column-major; a and b as they are stored, and whether they are transposed on the way.
struct shape {
    uint64_t m, n, k, a_rows, a_columns, b_rows, b_columns;
    cublasOperation_t a, b;
};

static shape shape_of(const ab_cuda_product_spec *spec) {
    uint64_t rows = static_cast<uint64_t>(spec->conv.batch);
    uint64_t in = static_cast<uint64_t>(spec->conv.window.channels);
    uint64_t out = static_cast<uint64_t>(spec->conv.out_channels);
    if (spec->kind == AB_PASS_FORWARD) return {out, rows, in, in, out, in, rows, CUBLAS_OP_T, CUBLAS_OP_N};
    if (spec->kind == AB_PASS_BACKWARD_DATA)
        return {in, rows, out, in, out, out, rows, CUBLAS_OP_N, CUBLAS_OP_N};
    return {in, out, rows, in, rows, out, rows, CUBLAS_OP_N, CUBLAS_OP_T};
}

static ab_status set_up(blas_product *p, const ab_cuda_product_spec *spec) {
    shape s = shape_of(spec);
    cudaDataType_t type = data_type(spec->type);
    bool tf32 = spec->tf32 && spec->type == AB_ELEMENT_F32;
    cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    AB_BLAS_TRY(cublasLtMatmulDescCreate(&p->matmul, compute, CUDA_R_32F));
    AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &s.a, sizeof s.a));
    AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_TRANSB, &s.b, sizeof s.b));
    if (p->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                   sizeof epilogue));
        AB_BLAS_TRY(cublasLtMatmulDescSetAttribute(p->matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                                   sizeof type));
    }
    AB_BLAS_TRY(
        cublasLtMatrixLayoutCreate(&p->a, type, s.a_rows, s.a_columns, static_cast<int64_t>(s.a_rows)));
    AB_BLAS_TRY(
        cublasLtMatrixLayoutCreate(&p->b, type, s.b_rows, s.b_columns, static_cast<int64_t>(s.b_rows)));
    AB_BLAS_TRY(cublasLtMatrixLayoutCreate(&p->d, type, s.m, s.n, static_cast<int64_t>(s.m)));
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

// *found becomes 0 when the library has nothing for the shape.
static ab_status choose(blas_product *p, int *found) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t result = {};
    *found = 0;
    AB_BLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    ab_status status = set_preference(preference);
    if (status == AB_OK) {
        cublasStatus_t code = cublasLtMatmulAlgoGetHeuristic(ab_cuda_get()->blas, p->matmul, p->a, p->b, p->d,
                                                             p->d, preference, 1, &result, found);
        if (code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE)
            *found = 0;
        else
            status = ab_cuda_check_blas(code, "cublasLtMatmulAlgoGetHeuristic");
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    if (status != AB_OK || *found < 1 || result.state != CUBLAS_STATUS_SUCCESS) *found = 0;
    p->algorithm = result.algo;
    p->base.workspace_bytes = result.workspaceSize;
    return status;
}

static void describe(blas_product *p) {
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
    snprintf(p->base.text, sizeof p->base.text, "cublaslt:algo%d,tile%d,stages%d,split%d%s", id, tile, stages,
             split, p->tf32 ? ",tf32" : "");
}

ab_status ab_cuda_blas_product(const ab_cuda_product_spec *spec, ab_cuda_product **product) {
    int found = 0;
    *product = nullptr;
    AB_TRY(ab_cuda_start());
    blas_product *p = static_cast<blas_product *>(calloc(1, sizeof *p));
    if (!p) return ab_fail(AB_NO_MEMORY, "linear: out of memory");
    p->base.run = run;
    p->base.destroy = destroy;
    p->kind = spec->kind;
    p->tf32 = spec->tf32 && spec->type == AB_ELEMENT_F32;
    p->bias = spec->kind == AB_PASS_FORWARD && spec->bias;
    ab_status status = set_up(p, spec);
    if (status == AB_OK) status = choose(p, &found);
    if (status != AB_OK || !found) {
        destroy(&p->base);
        return status == AB_UNAVAILABLE ? AB_OK : status;
    }
    describe(p);
    *product = &p->base;
    return AB_OK;
}
