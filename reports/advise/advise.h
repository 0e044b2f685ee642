/* Loss scale advice, predicted from the gradients of a run's record, and the comparison with a confirming
 * run.
 *
 * The prediction needs gradients that no cast has changed: those of the level's own cell if its scale never
 * changed and lost nothing, else those of an O0 cell, as histograms of exponents (powers of two; ties at half
 * the smallest subnormal and mantissas next to 2 are not distinguished, so shares are exact up to values with
 * those exponents). High enough: in every tensor at most `flushed_share` of the non-zero values, and
 * `flushed_energy` of the sum of squares, is flushed to zero, and no row of a weight (if the probe `rows`
 * ran) loses all of its recorded gradient. Low enough: at most a share `alpha` of the steps overflows,
 * nowhere more than one step in ten, and no more did in the record, by distributions of extreme values
 * weighted by their fit (advise_series.h). */
#ifndef AB_REPORTS_ADVISE_ADVISE_H
#define AB_REPORTS_ADVISE_ADVISE_H

#include "kernels/format/format.h"
#include "reports/advise/advise_series.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum {
    AB_ADVISE_TENSORS = 512,
    AB_ADVISE_LAYERS = 256,
    AB_ADVISE_RULES = 5,
    AB_ADVISE_NAME = 96,
    AB_ADVISE_K_MIN = -40,
    AB_ADVISE_K_MAX = 60
};

typedef struct ab_advise_goal {
    double flushed_share, flushed_energy, alpha;
    double horizon; /* training steps that a fixed scale must last; 0: as many as recorded */
    double scale;   /* predict for this scale; 0: for the advised one */
} ab_advise_goal;

extern const ab_advise_goal
    ab_advise_usual; /* defaults: 1, 1e-6, 1/2000 (skips that a growth window of 2000 costs anyway), 0, 0 */

typedef struct ab_advise_tensor {
    char name[AB_ADVISE_NAME], layer[AB_ADVISE_NAME]; /* printable */
    int k_lo;                                         /* lowest 2^k that is high enough */
    bool by_rows; /* k_lo is set by a row that would lose all of its gradient; the other limits are lower */
    double share, energy; /* flushed at the predicted scale */
    double a_step;        /* values per step */
    bool whole;           /* no zeros, NaN or inf in the record: zeros in a run were flushed */
} ab_advise_tensor;

/* One layer with a scale of its own. */
typedef struct ab_advise_layer {
    char name[AB_ADVISE_NAME];
    int k_lo, k_hi;
    bool feasible, blocks; /* k_lo <= k_hi; k_lo is above the run's k_hi */
    int k;                 /* own scale 2^k */
    double binades;        /* from its flush line to the largest gradient of the run */
    double share, energy,
        skipped; /* at the predicted scale: flushed, share of steps that overflow in this layer */
} ab_advise_layer;

/* The scale that another tool's rule chooses for the same gradients. */
typedef struct ab_advise_rule {
    const char *name, *text;
    double octaves, share, energy, skipped; /* log2 of its scale, and the predicted effects; NAN: no result */
} ab_advise_rule;

typedef struct ab_advise {
    const cJSON *cell; /* its gradients were used */
    bool own;          /* it is a cell of the level */
    const ab_format *half;
    double base_log2; /* log2 of the scale at which they were recorded */
    double run_steps; /* steps of that cell */
    int tensors, layers;
    ab_advise_tensor tensor[AB_ADVISE_TENSORS];
    ab_advise_layer layer[AB_ADVISE_LAYERS];
    int decides;    /* tensor with the largest k_lo */
    int k_lo, k_hi; /* high enough for every tensor; low enough */
    int k_hi_by[AB_EXTREME_KINDS];
    bool feasible;    /* k_lo <= k_hi */
    int k;            /* advised: one octave below k_hi if k_lo allows it; infeasible: k_lo */
    double binades;   /* that a single scale would have to cover */
    int steps;        /* recorded columns of steps used for the upper limit */
    ab_series series; /* of the largest gradient of a step, at scale 1 */
    /* predicted at 2^octaves */
    double octaves;
    double overflow, worst; /* share of the steps that overflow; highest overflow probability */
    double share, energy; /* flushed share over all tensors: of the non-zero values, of the sum of squares */
    double whole_share;   /* flushed share of the values of `whole` tensors */
    int wholes;
    /* fixed or dynamic */
    bool fixed;   /* a fixed scale lasts the horizon */
    double room;  /* octaves from the largest gradients (alpha quantile) to the limit at 2^k */
    double lasts; /* steps until the drift exceeds the range; INFINITY: no drift */
    int window;   /* growth window of a dynamic scale, steps */
    ab_advise_rule rule[AB_ADVISE_RULES];
} ab_advise;

/* Computes the advice for `level` from a summarised document. Cast tensors are those of the level's cell, or
 * all if there is no such cell. AB_INPUT if nothing usable was recorded; the message says what to run.
 * `advise` borrows from `document`. */
AB_MUST_CHECK ab_status ab_advise_make(const cJSON *document, const char *level, const ab_advise_goal *goal,
                                       ab_advise *advise);

/* The advice as text, and as keys of `object`. */
void ab_advise_print(const ab_advise *advise, const ab_advise_goal *goal, FILE *out);
void ab_advise_json(const ab_advise *advise, const ab_advise_goal *goal, cJSON *object);

/* ---- a loss scale that changed --------------------------------------------------------------- */

/* A probe's record whose loss scale changed, and what is not exact in it. */
typedef struct ab_advise_unscaled {
    int scales;             /* runs of steps at one scale; 0: the scale never changed, nothing was done */
    double least, largest;  /* scales */
    double values, rounded; /* gradients; those at scales that are no power of two, moved by the nearest */
    double cut;             /* columns, over all tensors, whose largest value is a lower bound */
} ab_advise_unscaled;

/* Puts a probe's gradients without the loss scale in place of the scaled ones, and a scale of 1, if the scale
 * changed; `document` is for the advice only afterwards. AB_INPUT: unknown half format. */
AB_MUST_CHECK ab_status ab_advise_unscale(cJSON *document, ab_advise_unscaled *about);

/* What was done, as a line of text and as a key of `object`; nothing if nothing was. */
void ab_advise_print_unscaled(const ab_advise_unscaled *about, FILE *out);
void ab_advise_unscaled_json(const ab_advise_unscaled *about, cJSON *object);

/* Fills advise->rule (advise_rules.c). */
void ab_advise_rules(ab_advise *advise, const cJSON *level_cell);

/* ---- shared by the files of the advice ------------------------------------------------------- */

/* True if the level casts the tensor of this name, or if level_cell is NULL. */
bool ab_advise_is_cast(const cJSON *level_cell, const char *name);
/* True if the level casts this recorded tensor, and it has values. */
bool ab_advise_is_used(const cJSON *level_cell, const cJSON *tensor);
/* The exponent from which a value overflows in the half format. */
double ab_advise_limit_log2(const ab_advise *advise);
/* Count and energy of a recorded tensor that are flushed at 2^octaves; between powers of two, values are
 * taken to be uniform within a binade. */
void ab_advise_flushed(const ab_advise *advise, const cJSON *tensor, double octaves, double *count,
                       double *energy);
/* The same for all cast tensors together, as shares. */
void ab_advise_flush_at(const ab_advise *advise, const cJSON *level_cell, double octaves, double *share,
                        double *energy);
/* Forecast of the steps that overflow at 2^octaves. */
ab_forecast ab_advise_overflow_at(const ab_advise *advise, const ab_series *series, double octaves);
/* Fits the series of the cast tensors of one layer (NULL: all); false: too few columns. */
bool ab_advise_series_of(const ab_advise *advise, const cJSON *level_cell, const char *layer,
                         ab_series *series);

/* ---- receipt --------------------------------------------------------------------------------- */

/* Comparison with a run at the predicted scale: the first cell of `document` that is not O0, with a fixed
 * scale that skips overflows, and all steps probed.
 *
 * Skips: binomial interval of the steps (Clopper and Pearson). Flushes: values of one step are correlated, so
 * the interval uses the effective number of independent values that gives the observed variance of the steps'
 * shares, with neighbouring steps correlated too (Korn and Graubard 1998). Only tensors without zeros of
 * their own are compared: there a zero after the cast was flushed by it or is a product of flushed values.
 * Elsewhere zeros of a mask cannot be distinguished from flushed ones. */
typedef struct ab_receipt {
    int steps, skipped;
    double expected;      /* expected number of skipped steps */
    double low, high;     /* of the share of skipped steps, 95 % */
    bool overflow_agrees; /* the predicted share is in [low, high] */
    double values, lost, share, share_low, share_high;
    bool flush_agrees;
    double predicted, predicted_share;
    double loss_gap; /* NAN if not known */
} ab_receipt;

/* The receipt of a confirming run's document, and its output as text and as keys of `object`.
 * ab_receipt_make: AB_INPUT if the document lacks the data. */
AB_MUST_CHECK ab_status ab_receipt_make(const cJSON *document, const ab_advise *advise, ab_receipt *receipt);
void ab_receipt_print(const ab_receipt *receipt, FILE *out);
void ab_receipt_json(const ab_receipt *receipt, cJSON *object);

AB_END_DECLS

#endif
