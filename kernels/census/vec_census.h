/* Counting loops of the census, compiled once per CPU level (vec_census.c) and selected at each call by
 * ab_isa_get(), and the scalar functions shared with census.c. All levels give the same counts; the
 * scalar functions are the reference.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_CENSUS_VEC_CENSUS_H
#define AB_KERNELS_CENSUS_VEC_CENSUS_H

#include "kernels/census/census_counts.h"
#include "kernels/vec/stored.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_CENSUS_STATE = 60 * 1024 }; /* bytes of the largest level's state */

/* A block, aligned for its element type. `ahead`: as many values of the same type to prefetch while it is
 * counted, or NULL. */
typedef struct ab_census_values {
    const void *data, *ahead;
    ab_stored stored;
} ab_census_values;

typedef struct ab_vec_census {
    bool takes_halves;                 /* whether block() accepts AB_STORED_BF16 and AB_STORED_FP16 */
    int64_t distance[AB_STORED_COUNT]; /* bytes from a block to what is prefetched meanwhile, the fastest
                                        * that was measured */
    /* Call begin, then block for every AB_CENSUS_BLOCK values, then end. The census is incomplete until
     * end. `state` points to AB_CENSUS_STATE bytes, aligned to 64. */
    void (*begin)(void *state, ab_census *census);
    void (*block)(void *state, const ab_census_values *values);
    void (*end)(void *state);

    /* Add the extremes, or the sum of squares, of at most one block to the census. */
    void (*note_extremes)(ab_census *census, const float *values, int64_t n);
    void (*add_squares)(ab_census *census, const float *values, int64_t n);
} ab_vec_census;

/* The loops of the CPU level in force (vec/isa.h). */
const ab_vec_census *ab_vec_census_get(void);

/* Counts one value: everything but count, extremes and sum of squares. */
void ab_census_count_value(ab_census *census, float value);

/* The sum of squares of a block. If every value is 0 or has an exponent in AB_CENSUS_SQUARE_MIN ..
 * AB_CENSUS_SQUARE_MAX, value i is squared in fp32 and added in fp32 to lane i % AB_CENSUS_LANES; no
 * square can overflow or be subnormal then. Otherwise squares and lanes are double, and non-finite values
 * are skipped. The lanes are summed in double, upper half to lower half, until one is left. */
enum { AB_CENSUS_LANES = 32, AB_CENSUS_SQUARE_MIN = -62, AB_CENSUS_SQUARE_MAX = 52 };

AB_END_DECLS

#endif
