/* The CPU's own convert instructions, as an additional reference for proofs. Not used for conversions
 * anywhere else. */
#ifndef AB_BENCH_PROVE_HARDWARE_H
#define AB_BENCH_PROVE_HARDWARE_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef struct ab_hardware_convert {
    const char *name; /* the instruction */
    const ab_format *format;
    ab_round_mode mode;
    bool flushes_inputs; /* treats fp32 subnormals as zero: not comparable there */
    void (*convert)(uint16_t *codes, const float *values, int64_t n); /* n: a multiple of 8 */
} ab_hardware_convert;

/* Returns this CPU's instruction for the pair (not saturating, subnormals kept), or NULL. */
const ab_hardware_convert *ab_hardware_find(const ab_format *format, const ab_rounding *rounding);

AB_END_DECLS

#endif
