/* The build without oneDNN: returns no passes, so that callers use our own kernels. */
#include "kernels/ops/product/dnnl_shim.h"

ab_status ab_dnnl_conv_pass(const ab_pass_spec *spec, ab_pass **pass) {
    (void)spec;
    *pass = NULL;
    return AB_OK;
}

ab_status ab_dnnl_matmul_pass(const ab_pass_spec *spec, ab_pass **pass) {
    (void)spec;
    *pass = NULL;
    return AB_OK;
}

ab_status ab_dnnl_nth_pass(const ab_pass_spec *spec, bool matmul, int n, ab_pass **pass) {
    (void)spec;
    (void)matmul;
    (void)n;
    *pass = NULL;
    return AB_OK;
}

bool ab_dnnl_usable(void) { return false; }

const char *ab_dnnl_version(void) { return NULL; }

bool ab_dnnl_gemm(const struct ab_gemm *gemm) {
    (void)gemm;
    return false;
}
