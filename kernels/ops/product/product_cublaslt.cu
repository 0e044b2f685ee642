// The products of linear through cuBLASLt (cuda_gemm.cuh); the bias is added before the one rounding.
#include "kernels/core/text.h"
#include "kernels/cuda/cuda_gemm.cuh"
#include "kernels/ops/product/product_cuda.cuh"

#include <cstdio>
#include <cstdlib>

namespace {
struct blas_product {
    ab_cuda_product base; // must be the first member
    ab_pass_kind kind;
    ab_cuda_gemm_plan *plan;
};
} // namespace

static void destroy(ab_cuda_product *base) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    if (!p) return;
    ab_cuda_gemm_destroy(p->plan);
    free(p);
}

static ab_status run(ab_cuda_product *base, const ab_cuda_operands *o) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    const void *a = p->kind == AB_PASS_FORWARD ? o->in : o->dout;
    const void *b = p->kind == AB_PASS_BACKWARD_WEIGHTS ? o->in : o->weights;
    void *c = p->kind == AB_PASS_FORWARD ? o->out : p->kind == AB_PASS_BACKWARD_WEIGHTS ? o->dweight : o->din;
    return ab_cuda_gemm_run(p->plan, a, b, c, 1.0f, 0.0f, o->bias, o->workspace);
}

// out = in W^T; din = dout W; dW = dout^T in. W is {out, in}.
static ab_cuda_gemm shape_of(const ab_cuda_product_spec *spec) {
    int64_t rows = spec->conv.batch, in = spec->conv.window.channels, out = spec->conv.out_channels;
    bool forward = spec->kind == AB_PASS_FORWARD, weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    ab_cuda_gemm g = forward   ? ab_cuda_gemm_of(rows, out, in, spec->type)
                     : weights ? ab_cuda_gemm_of(out, in, rows, spec->type)
                               : ab_cuda_gemm_of(rows, in, out, spec->type);
    if (forward) {
        g.transpose_b = true;
        g.ldb = in;
    }
    if (weights) {
        g.transpose_a = true;
        g.lda = out;
    }
    g.tf32 = spec->tf32 && spec->type == AB_ELEMENT_F32;
    g.bias = forward && spec->bias;
    return g;
}

ab_status ab_cuda_blas_product(const ab_cuda_product_spec *spec, ab_cuda_product **product) {
    const ab_cuda_gemm shape = shape_of(spec);
    *product = nullptr;
    blas_product *p = static_cast<blas_product *>(calloc(1, sizeof *p));
    if (!p) return ab_fail(AB_NO_MEMORY, "linear: out of memory");
    p->base.run = run;
    p->base.destroy = destroy;
    p->kind = spec->kind;
    ab_status status = ab_cuda_gemm_make(&shape, &p->plan);
    if (status != AB_OK || !p->plan) {
        destroy(&p->base);
        return status;
    }
    p->base.workspace_bytes = p->plan->workspace_bytes;
    ab_text_show(p->base.text, sizeof p->base.text, "%s", p->plan->text);
    *product = &p->base;
    return AB_OK;
}
