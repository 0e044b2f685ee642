/* The factors are a table: they depend on the number of draws only. tests/unit/reports/stats/test_chance.c
 * draws them again. */
#include "reports/stats/chance.h"

#include <math.h>

static const double factor[AB_CHANCE_DRAWS_MOST] = {
    11.0264, 3.8370, 2.8943, 2.5549, 2.3833, 2.2803, 2.2118, 2.1630, 2.1265, 2.0982,
    2.0756,  2.0571, 2.0417, 2.0288, 2.0176, 2.0080, 1.9996, 1.9922, 1.9856, 1.9797,
};

double ab_chance_gap(const double *draw, int n) {
    double squares = 0;
    for (int i = 0; i < n; i++) squares += draw[i] * draw[i];
    return factor[(n < AB_CHANCE_DRAWS_MOST ? n : AB_CHANCE_DRAWS_MOST) - 1] * sqrt(squares / n);
}
