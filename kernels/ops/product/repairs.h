/* How many products with non-finite operands were corrected (nonfinite.h), for the record. */
#ifndef AB_KERNELS_OPS_PRODUCT_REPAIRS_H
#define AB_KERNELS_OPS_PRODUCT_REPAIRS_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* Number of corrections since process start. */
typedef struct ab_repair_counts {
    int64_t products; /* with at least one corrected result */
    int64_t cleared;  /* non-finite results that read no non-finite value */
    int64_t restored; /* finite results that read inf or NaN */
} ab_repair_counts;

/* Totals over all products of the process. */
ab_repair_counts ab_repair_totals(void);

AB_END_DECLS

#endif
