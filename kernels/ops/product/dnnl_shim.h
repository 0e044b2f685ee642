/* Convolution and matrix product through oneDNN; one source for 2.6 and 3.x (2.7, 3.x: the descriptor API
 * changed in 3.0). The oneDNN API is not exposed.
 *
 * The implementation is chosen by a fixed rule, not by timing, so runs reproduce (dnnl_shim.c).
 * Implementations called "ref" are never used. A build without oneDNN has the same functions; they return no
 * pass.
 *
 * Internal to kernels/. A pass runs on the calling thread only; sliced.c distributes it over threads. */
#ifndef AB_KERNELS_OPS_PRODUCT_DNNL_SHIM_H
#define AB_KERNELS_OPS_PRODUCT_DNNL_SHIM_H

#include "kernels/ops/product/library.h"
#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* ab_pass_maker functions (pass.h): operands fp32, bf16 or fp16, results fp32. *pass stays NULL if the
 * library has no fast implementation. */
AB_MUST_CHECK ab_status ab_dnnl_conv_pass(const ab_pass_spec *spec, ab_pass **pass);
AB_MUST_CHECK ab_status ab_dnnl_matmul_pass(const ab_pass_spec *spec,
                                            ab_pass **pass); /* 1x1 images and kernel */

/* What both return for a spec of sizes_only: sizes estimated from the shapes, without a call that creates
 * anything in the library. Path "native" is estimated as "auto" is. */
AB_MUST_CHECK ab_status ab_dnnl_sizes(const ab_pass_spec *spec, bool matmul, ab_pass **pass);

/* Implementation n, from 0, of all that the library offers, "ref" included. For tests that cover all of them.
 * *pass is NULL after the last. */
AB_MUST_CHECK ab_status ab_dnnl_nth_pass(const ab_pass_spec *spec, bool matmul, int n, ab_pass **pass);

/* Computes the product on the calling thread. Returns false, and writes nothing, if the library does not
 * support it. */
struct ab_gemm; /* gemm.h */
bool ab_dnnl_gemm(const struct ab_gemm *gemm);

/* Whether there is a library and it computes on the calling thread. Without that no pass is made and nothing
 * multiplied. */
bool ab_dnnl_usable(void);

AB_END_DECLS

#endif
