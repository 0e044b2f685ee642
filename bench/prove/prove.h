/* Proofs of conversions: all 2^32 fp32 inputs of a (format, rounding) pair against the oracle. Nothing is
 * sampled.
 *
 * What is proven: the scalar definition (kernels/format/format.c), the array kernels
 * (kernels/format/convert.c) and, for comparison, the CPU's own convert instruction. */
#ifndef AB_BENCH_PROVE_PROVE_H
#define AB_BENCH_PROVE_PROVE_H

#include "kernels/format/format.h"
#include "reports/render/format_ranges.h"

AB_BEGIN_DECLS

/* An implementation under test: for n inputs (a multiple of 8, at most 2048), writes the encodings and their
 * values as fp32 bits. Called from several threads. */
typedef struct ab_subject {
    const char *name;
    void (*convert)(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                    uint32_t *codes, uint32_t *values);
    bool skips_subnormals; /* zero and subnormal fp32 inputs are left out */
} ab_subject;

enum { AB_PROVE_BLOCKS = 256 };

/* AB_UNAVAILABLE, with the reason, if the oracle does not cover the pair. */
AB_MUST_CHECK ab_status ab_prove_check(const ab_format *format, const ab_rounding *rounding);

/* Checks one subject on `blocks` blocks from `first_block` on (2^24 inputs each, 256 in total), with OpenMP
 * threads; the result does not depend on their number. tally may be NULL. Fails as ab_prove_check does. */
AB_MUST_CHECK ab_status ab_prove_subject(const ab_subject *subject, const ab_format *format,
                                         const ab_rounding *rounding, int first_block, int blocks,
                                         ab_proof_verdict *verdict, ab_proof_tally *tally);

/* Checks the scalar definition, the array kernels at the current CPU level (with every_level: at every level
 * up to it) and the CPU's instruction on all inputs. AB_OK means that the proof ran, not that it succeeded:
 * see ab_proof_mismatches. Not thread-safe: it sets the CPU level. */
AB_MUST_CHECK ab_status ab_prove(const ab_format *format, const ab_rounding *rounding, bool every_level,
                                 ab_proof *proof);

/* The CPU's own convert instructions, as an additional reference for proofs. Not used for conversions
 * anywhere else. */

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
