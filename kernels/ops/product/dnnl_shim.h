/* Convolution and matrix product through oneDNN, one source for versions 2.6 and 3.x (2.7, 3.x: the
 * descriptor interface changed in 3.0). Nothing of the library's interface shows here.
 *
 * Implementation choice is a fixed rule, not a timing, so that runs reproduce (dnnl_shim.c). Implementations
 * called "ref" are never taken. A build without the library has the same functions; they make nothing.
 *
 * Internal to kernels/. A pass runs on the calling thread alone; sliced.h spreads it over the threads. */
#ifndef AB_KERNELS_OPS_PRODUCT_DNNL_SHIM_H
#define AB_KERNELS_OPS_PRODUCT_DNNL_SHIM_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Makers (pass.h): operands fp32, bf16 or fp16, results fp32; *pass stays NULL if the library has nothing
 * fast. */
AB_MUST_CHECK ab_status ab_dnnl_conv_pass(const ab_pass_spec *spec, ab_pass **pass);
AB_MUST_CHECK ab_status ab_dnnl_matmul_pass(const ab_pass_spec *spec,
                                            ab_pass **pass); /* 1x1 images and kernel */

/* The n-th implementation that the library offers, from 0, whatever it is: "ref" ones too. For tests, which
 * look at all of them. *pass stays NULL behind the last. */
AB_MUST_CHECK ab_status ab_dnnl_nth_pass(const ab_pass_spec *spec, bool matmul, int n, ab_pass **pass);

/* The product on this thread; false if the library does not do it (nothing is written then). */
struct ab_gemm; /* gemm.h */
bool ab_dnnl_gemm(const struct ab_gemm *gemm);

/* "oneDNN 2.6.3", or NULL in a build without it. */
const char *ab_dnnl_version(void);

AB_END_DECLS

#endif
