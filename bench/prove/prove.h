/* Proofs of conversions: all 2^32 fp32 inputs of a (format, rounding) pair against the oracle. Nothing is
 * sampled.
 *
 * What is proven: the scalar definition (kernels/format/format.c), the array kernels
 * (kernels/format/convert.c) and, for comparison, the CPU's own convert instruction. */
#ifndef AB_BENCH_PROVE_PROVE_H
#define AB_BENCH_PROVE_PROVE_H

#include "kernels/format/format.h"
#include "reports/render/proof.h"

AB_BEGIN_DECLS

/* One implementation on trial: for n inputs (a multiple of 8, 2048 at most), the encodings and their values
 * as fp32 bits. Called from several threads. */
typedef struct ab_subject {
    const char *name;
    void (*convert)(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                    uint32_t *codes, uint32_t *values);
    bool skips_subnormals; /* zero and subnormal fp32 inputs are left out */
} ab_subject;

enum { AB_PROVE_BLOCKS = 256 };

/* AB_UNAVAILABLE, saying why, if the oracle does not cover the pair. */
AB_MUST_CHECK ab_status ab_prove_check(const ab_format *format, const ab_rounding *rounding);

/* Tries one subject on `blocks` blocks from `first_block` on (2^24 inputs each, 256 in all), on OpenMP's
 * threads; the outcome does not depend on their number. tally may be NULL. Fails as ab_prove_check does. */
AB_MUST_CHECK ab_status ab_prove_subject(const ab_subject *subject, const ab_format *format,
                                         const ab_rounding *rounding, int first_block, int blocks,
                                         ab_proof_verdict *verdict, ab_proof_tally *tally);

/* Tries the scalar definition, the array kernels at the CPU level in force (every level up to it, if asked)
 * and the CPU's instruction on all inputs. AB_OK means that the proof was done, not that it succeeded: look
 * at ab_proof_mismatches. Not to be called from several threads: it forces CPU levels. */
AB_MUST_CHECK ab_status ab_prove(const ab_format *format, const ab_rounding *rounding, bool every_level,
                                 ab_proof *proof);

AB_END_DECLS

#endif
