/* The largest gradients of a run over its steps, and how often a later run of the same configuration
 * overflows at a scale.
 *
 * Steps are not independent draws. Gradients drift as training goes on, so a local trend is taken out first
 * (straight lines through neighbouring columns, tricube weights: Cleveland 1979) and laws are fitted to what
 * is left (extremes.h). And an overflow is skipped, so the weights stay where they were: the run dwells 1 /
 * (1 - p) times as long where it overflows with probability p. A column of the record holds the largest of
 * several probed steps, which is told apart from the largest of one.
 *
 * A spread that few columns show may be much too small. Below AB_SERIES_ENOUGH columns residuals above the
 * trend are taken to be wider by sqrt(df / q), where q is the 5 % point of chi-squared with df = columns - 3
 * degrees of freedom: the upper 95 % bound of a standard deviation, two degrees less for the trend.
 *
 * Assumed: the later run visits the sizes of gradients that the recorded one visited, in that order. Where
 * many steps in a row overflow the run is held there and the forecast is a lower bound; `worst` tells. */
#ifndef AB_REPORTS_ADVISE_ADVISE_SERIES_H
#define AB_REPORTS_ADVISE_ADVISE_SERIES_H

#include "reports/advise/extremes.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

enum {
    AB_SERIES_COLUMNS = 256,
    AB_SERIES_REACH = 4, /* columns, of the trend */
    AB_SERIES_FEWEST = 6,
    AB_SERIES_ENOUGH = 16 /* columns; with fewer the spread is widened */
};

typedef struct ab_series {
    int columns, censored;
    double steps_a_column;             /* training steps */
    double block;                      /* probed steps whose largest value a column is */
    double largest[AB_SERIES_COLUMNS]; /* log2, at scale 1 */
    bool cut[AB_SERIES_COLUMNS];       /* a lower bound only */
    double top;                        /* log2 of the largest of all */
    double trend[AB_SERIES_COLUMNS];
    double residual[AB_SERIES_COLUMNS]; /* ascending */
    bool residual_cut[AB_SERIES_COLUMNS];
    ab_extremes law; /* of the residuals */
    double widened;  /* how many times wider than found their spread is taken to be: 1 from AB_SERIES_ENOUGH
                        columns on */
    double drift,
        drift_error; /* octaves per 1000 steps over the last three quarters, and its standard error */
} ab_series;

/* `series` has columns (AB_SERIES_FEWEST or more), steps_a_column, block, largest, cut and top; the rest is
 * made. */
void ab_series_fit(ab_series *series);

typedef struct ab_forecast {
    double skipped; /* share of the steps that overflow */
    double worst;   /* probability where it is highest */
    double seen;    /* columns of the record that met the limit, as a share of the steps */
} ab_forecast;

/* Of `steps` training steps if values of 2^limit and above overflow. */
ab_forecast ab_series_forecast(const ab_series *series, ab_extreme_kind kind, double limit, double steps);

/* log2 of what at most a share alpha of the steps exceed, nowhere more than one step in ten, and no more did
 * (bisection to 2^-20). */
double ab_series_quantile(const ab_series *series, ab_extreme_kind kind, double alpha, double steps);

/* Whether a forecast is that low. */
bool ab_forecast_within(const ab_forecast *forecast, double alpha);

AB_END_DECLS

#endif
