/* Outcomes of proofs of conversions: as text and as JSON. Who proves fills the structs (bench/prove). */
#ifndef AB_REPORTS_RENDER_PROOF_H
#define AB_REPORTS_RENDER_PROOF_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_PROOF_SUBJECTS = 8 };

/* What became of one implementation on trial. */
typedef struct ab_proof_verdict {
    const char *subject; /* its name; static */
    uint64_t inputs, mismatches;
    uint32_t input, expected, got; /* the first mismatch: bits of the input, encodings; when there is one */
} ab_proof_verdict;

/* The results by kind, and a checksum of all encodings: for each block of 2^24 inputs, in the order of their
 * bits, FNV-1a (64 bits) a word a round, a word being two encodings of 32 bits, the first in the low half;
 * then the same over the blocks' sums. */
typedef struct ab_proof_tally {
    uint64_t zero, subnormal, normal, infinite, nan;
    uint64_t checksum;
} ab_proof_tally;

typedef struct ab_proof {
    ab_proof_verdict verdict[AB_PROOF_SUBJECTS];
    int verdicts;
    ab_proof_tally tally; /* of the scalar definition */
    double seconds;
} ab_proof;

/* Inputs whose conversion differs from the definition, over all subjects; 0: proved. */
uint64_t ab_proof_mismatches(const ab_proof *proof);

/* One proof as text. pair: what was proved, as the user writes it ("fp16,rne,saturate"). */
void ab_proof_print(FILE *out, const char *pair, const ab_proof *proof);

/* The same as an object, which the caller owns (cJSON_Delete). */
cJSON *ab_proof_json(const char *pair, const ab_proof *proof);

AB_END_DECLS

#endif
