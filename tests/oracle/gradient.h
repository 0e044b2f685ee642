/* Central differences: checks a gradient that an oracle claims against the oracle's own forward function, so
 * that a wrong oracle cannot agree with a wrong kernel by design. Of many elements, some spread evenly, for
 * each costs two passes; a formula that is wrong is wrong at more than a few. */
#ifndef AB_TESTS_ORACLE_GRADIENT_H
#define AB_TESTS_ORACLE_GRADIENT_H

#include <math.h>
#include <stdint.h>

enum { ORACLE_DIFFERENCES = 61 };

/* A scalar function of a vector; `self` holds everything else. */
typedef double (*oracle_scalar)(const void *self);

/* Largest difference between claimed[i] and (f(x + h e_i) - f(x - h e_i)) / 2h, relative to the largest
 * gradient. The function reads x through `self`. */
static inline double oracle_gradient_error(oracle_scalar f, const void *self, double *x,
                                           const double *claimed, int64_t count) {
    double worst = 0.0, largest = 1e-30, h = 1e-5;
    int64_t looked_at = count < ORACLE_DIFFERENCES ? count : ORACLE_DIFFERENCES;
    for (int64_t k = 0; k < looked_at; k++) {
        int64_t i = looked_at > 1 ? k * (count - 1) / (looked_at - 1) : 0;
        double keep = x[i];
        x[i] = keep + h;
        double up = f(self);
        x[i] = keep - h;
        double down = f(self);
        x[i] = keep;
        worst = fmax(worst, fabs((up - down) / (2.0 * h) - claimed[i]));
        largest = fmax(largest, fabs(claimed[i]));
    }
    return worst / largest;
}

#endif
