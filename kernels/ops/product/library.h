/* The library that computes products, for the record. */
#ifndef AB_KERNELS_OPS_PRODUCT_LIBRARY_H
#define AB_KERNELS_OPS_PRODUCT_LIBRARY_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* "2.6.3": the oneDNN that the process uses. NULL in a build without it, and if the one found at run time
 * computes in threads of its own (kernels/onednn/dnnl_usable.c), which is said once on stderr. */
const char *ab_dnnl_version(void);

AB_END_DECLS

#endif
