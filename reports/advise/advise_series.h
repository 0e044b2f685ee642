/* The largest gradients of a run per step, and how often a later run of the same configuration overflows at a
 * given scale.
 *
 * Steps are not independent. Gradients drift during training, so a local trend is subtracted first (straight
 * lines through neighbouring columns, tricube weights: Cleveland 1979) and distributions are fitted to the
 * residuals (extremes.h). A step that overflows is skipped and the weights do not change, so the run stays 1
 * / (1 - p) times as long where it overflows with probability p. A column of the record holds the largest of
 * several probed steps; this is converted to the largest of one.
 *
 * The spread of few columns may be much too small. Below AB_SERIES_ENOUGH columns, residuals above the trend
 * are widened by sqrt(df / q), where q is the 5 % point of chi-squared with df = columns - 3 degrees of
 * freedom: the upper 95 % bound of a standard deviation, two degrees less for the trend.
 *
 * Assumption: the later run has gradients of the same magnitudes in the same order. If many steps in a row
 * overflow, the run is held there and the forecast is a lower bound; see `worst`. */
#ifndef AB_REPORTS_ADVISE_ADVISE_SERIES_H
#define AB_REPORTS_ADVISE_ADVISE_SERIES_H

#include "reports/advise/extremes.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

enum {
    AB_SERIES_COLUMNS = 256,
    AB_SERIES_REACH = 4, /* columns on each side, for the trend */
    AB_SERIES_FEWEST = 6,
    AB_SERIES_ENOUGH = 16 /* columns; with fewer, the spread is widened */
};

typedef struct ab_series {
    int columns, censored;
    double steps_a_column;             /* training steps per column */
    double block;                      /* probed steps per column */
    double largest[AB_SERIES_COLUMNS]; /* log2, at scale 1 */
    bool cut[AB_SERIES_COLUMNS];       /* `largest` is only a lower bound */
    double top;                        /* log2 of the largest value of the run */
    double trend[AB_SERIES_COLUMNS];
    double residual[AB_SERIES_COLUMNS]; /* ascending */
    bool residual_cut[AB_SERIES_COLUMNS];
    ab_extremes law; /* distributions of the residuals */
    double widened;  /* factor by which their spread is widened: 1 from AB_SERIES_ENOUGH columns on */
    double drift,
        drift_error; /* octaves per 1000 steps over the last three quarters, and its standard error */
} ab_series;

/* Input: columns (AB_SERIES_FEWEST or more), steps_a_column, block, largest, cut and top; fills the other
 * fields. */
void ab_series_fit(ab_series *series);

typedef struct ab_forecast {
    double skipped; /* share of the steps that overflow */
    double worst;   /* highest overflow probability */
    double seen;    /* columns of the record at or above the limit, as a share of the steps */
} ab_forecast;

/* Forecast for `steps` training steps if values of 2^limit and above overflow. */
ab_forecast ab_series_forecast(const ab_series *series, ab_extreme_kind kind, double limit, double steps);

/* log2 of the lowest limit whose forecast is within alpha (bisection to 2^-20). */
double ab_series_quantile(const ab_series *series, ab_extreme_kind kind, double alpha, double steps);

/* True if at most a share alpha of the steps overflows, predicted and recorded, and nowhere more than one
 * step in ten (or alpha, if larger). */
bool ab_forecast_within(const ab_forecast *forecast, double alpha);

AB_END_DECLS

#endif
