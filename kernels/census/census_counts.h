/* The counts of a census. Functions: census.h; bins: census_bin.h. */
#ifndef AB_KERNELS_CENSUS_CENSUS_COUNTS_H
#define AB_KERNELS_CENSUS_CENSUS_COUNTS_H

#include "kernels/census/census_bin.h"

typedef struct ab_census {
    int64_t count; /* values seen */
    int64_t zero, nan, pos_inf, neg_inf;
    int64_t subnormal;      /* in the stored format of the values */
    float min_abs, max_abs; /* finite non-zero magnitudes; 0 if none */
    double sum_squares;     /* of the finite values */
    int64_t bin[AB_CENSUS_EXPONENTS]
               [AB_CENSUS_CLASSES]; /* finite non-zero values: [exponent - AB_CENSUS_EMIN][class] */
} ab_census;

#endif
