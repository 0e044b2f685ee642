/* Proofs of conversions: all 2^32 fp32 inputs of a (format, rounding) pair against the oracle. Nothing is
 * sampled.
 *
 * What is proven: the scalar definition (kernels/format/format.c), the array kernels (kernels/format/convert.c) and, for
 * comparison, the CPU's own convert instruction. */
#ifndef AB_BENCH_PROVE_PROVE_H
#define AB_BENCH_PROVE_PROVE_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* One implementation on trial: for n inputs (a multiple of 8, 2048 at most), the encodings and their values
 * as fp32 bits. Called from several threads. */
typedef struct ab_subject {
    const char *name;
    void (*convert)(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                    uint32_t *codes, uint32_t *values);
    bool skips_subnormals; /* zero and subnormal fp32 inputs are left out */
} ab_subject;

typedef struct ab_verdict {
    const char *subject;
    uint64_t inputs, mismatches;
    uint32_t input, expected, got; /* the first mismatch: bits of the input, encodings; when there is one */
} ab_verdict;

/* The results by kind, and a checksum of all encodings: for each block of 2^24 inputs, in the order of their
 * bits, FNV-1a (64 bits) a word a round, a word being two encodings of 32 bits, the first in the low half;
 * then the same over the blocks' sums. */
typedef struct ab_tally {
    uint64_t zero, subnormal, normal, infinite, nan;
    uint64_t checksum;
} ab_tally;

enum { AB_PROVE_BLOCKS = 256, AB_PROVE_SUBJECTS = 8 };

typedef struct ab_proof {
    ab_verdict verdict[AB_PROVE_SUBJECTS];
    int verdicts;
    ab_tally tally; /* of the scalar definition */
    double seconds;
} ab_proof;

/* AB_UNAVAILABLE, saying why, if the oracle does not cover the pair. */
AB_MUST_CHECK ab_status ab_prove_check(const ab_format *format, const ab_rounding *rounding);

/* Tries one subject on `blocks` blocks from `first_block` on (2^24 inputs each, 256 in all), on OpenMP's
 * threads; the outcome does not depend on their number. tally may be NULL. Fails as ab_prove_check does. */
AB_MUST_CHECK ab_status ab_prove_subject(const ab_subject *subject, const ab_format *format,
                                         const ab_rounding *rounding, int first_block, int blocks,
                                         ab_verdict *verdict, ab_tally *tally);

/* Tries the scalar definition, the array kernels at the CPU level in force (every level up to it, if asked)
 * and the CPU's instruction on all inputs. AB_OK means that the proof was done, not that it succeeded: look
 * at ab_proof_mismatches. Not to be called from several threads: it forces CPU levels. */
AB_MUST_CHECK ab_status ab_prove(const ab_format *format, const ab_rounding *rounding, bool every_level,
                                 ab_proof *proof);

/* Inputs whose conversion differs from the definition, over all subjects. */
uint64_t ab_proof_mismatches(const ab_proof *proof);

AB_END_DECLS

#endif
