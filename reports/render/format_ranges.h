/* Ranges of number formats, computed from their definitions, as tables and as JSON. */
#ifndef AB_REPORTS_RENDER_FORMAT_RANGES_H
#define AB_REPORTS_RENDER_FORMAT_RANGES_H

#include "kernels/core/compiler.h"
#include "kernels/format/block_format.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* Prints a table with a heading and one line per format[count]: bits, precision (significand bits
 * including the leading bit), largest and smallest magnitudes, eps, and the number of binades between
 * them. */
void ab_format_ranges_print(FILE *out, const ab_format *const *format, int count);

/* The same for block formats: elements per block, formats of element and scale, bits per element including
 * its share of the scale. */
void ab_block_format_ranges_print(FILE *out, const ab_block_format *const *format, int count);

/* Returns one format as an object owned by the caller (cJSON_Delete). Magnitudes have 17 digits.
 * "overflow_limit" is the largest magnitude that may still round to "max"; "overflow_at_limit" says
 * whether the limit itself overflows. */
cJSON *ab_format_range_json(const ab_format *format);
cJSON *ab_block_format_range_json(const ab_block_format *format);

/* Results of exhaustive conversion proofs as text and as JSON. bench/prove fills the structs. */

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
