/* Results of exhaustive conversion proofs as text and as JSON. bench/prove fills the structs. */
#ifndef AB_REPORTS_RENDER_PROOF_H
#define AB_REPORTS_RENDER_PROOF_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_PROOF_SUBJECTS = 8 };

/* Result for one implementation under test. */
typedef struct ab_proof_verdict {
    const char *subject; /* its name; static */
    uint64_t inputs, mismatches;
    uint32_t input, expected, got; /* the first mismatch, if any: bits of the input, encodings */
} ab_proof_verdict;

/* Counts of results by kind, and a checksum of all encodings: for each block of 2^24 inputs, in order of
 * their bits, 64-bit FNV-1a with one word per round, a word being two 32-bit encodings, the first in the
 * low half; then the same over the blocks' checksums. */
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

/* Number of inputs whose conversion differs from the definition, over all subjects; 0: proved. */
uint64_t ab_proof_mismatches(const ab_proof *proof);

/* Prints one proof as text. pair: the conversion as the user writes it ("fp16,rne,saturate"). */
void ab_proof_print(FILE *out, const char *pair, const ab_proof *proof);

/* Returns the same as an object owned by the caller (cJSON_Delete). */
cJSON *ab_proof_json(const char *pair, const ab_proof *proof);

AB_END_DECLS

#endif
