/* Which loss scale suits a run, predicted from the gradients of its record, and what a run at that scale then
 * showed.
 *
 * The prediction needs the gradients as no cast has changed them: the level's own cell if its scale never
 * changed and lost nothing, else an O0 cell, with its histograms of exponents (powers of two; a tie at half
 * the smallest subnormal and mantissas next to 2 are not told apart, so shares are exact up to values with
 * those exponents). High enough: in every tensor at most `flushed_share` of the non-zero values, and
 * `flushed_energy` of the sum of squares, becomes zero, and no row of a weight (probe `rows`, where it ran)
 * loses all of its gradient that it had in the record. Low enough: at most a share `alpha` of the steps
 * overflows, and nowhere more than one step in ten, nor more did, by laws of largest values weighted by how
 * well they fit (advise_series.h). */
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
    double horizon; /* training steps a fixed scale has to last; 0: as many as were recorded */
    double scale;   /* what is predicted is for this one; 0: for the advised one */
} ab_advise_goal;

extern const ab_advise_goal
    ab_advise_usual; /* 1, 1e-6, 1/2000: what a growth window of 2000 pays anyway; 0, 0 */

typedef struct ab_advise_tensor {
    char name[AB_ADVISE_NAME], layer[AB_ADVISE_NAME]; /* cleaned */
    int k_lo;                                         /* lowest 2^k that is high enough for it */
    bool by_rows; /* the one below which a whole row of it would have no gradient; its other limits are lower
                   */
    double share, energy; /* flushed at the predicted scale */
    double a_step;        /* values */
    bool whole;           /* no zeros in the record: what a run makes zero of it was flushed */
} ab_advise_tensor;

/* One layer by itself: what a scale of its own could do. */
typedef struct ab_advise_layer {
    char name[AB_ADVISE_NAME];
    int k_lo, k_hi;
    bool feasible, blocks;         /* k_lo <= k_hi; its k_lo is above what the whole run allows */
    int k;                         /* for a scale of its own */
    double binades;                /* from its flush line to the largest gradient of the run */
    double share, energy, skipped; /* at the predicted scale: flushed, and steps that overflow in it */
} ab_advise_layer;

/* What another tool's rule makes of the same gradients. */
typedef struct ab_advise_rule {
    const char *name, *text;
    double octaves, share, energy,
        skipped; /* log2 of its scale, and what that would do; NAN: it has no answer */
} ab_advise_rule;

typedef struct ab_advise {
    const cJSON *cell; /* whose gradients were used */
    bool own;          /* it is the level's own */
    const ab_format *half;
    double base_log2; /* log2 of the scale they were recorded at */
    double run_steps; /* of that cell */
    int tensors, layers;
    ab_advise_tensor tensor[AB_ADVISE_TENSORS];
    ab_advise_layer layer[AB_ADVISE_LAYERS];
    int decides;    /* tensor with the largest k_lo */
    int k_lo, k_hi; /* high enough for every tensor; low enough */
    int k_hi_by[AB_EXTREME_KINDS];
    bool feasible;    /* k_lo <= k_hi */
    int k;            /* advised: one octave below k_hi where k_lo allows it; without: k_lo */
    double binades;   /* that one scale would have to hold */
    int steps;        /* recorded columns of steps that the upper limit rests on */
    ab_series series; /* of the largest gradient of a step, at scale 1 */
    /* predicted at 2^octaves */
    double octaves;
    double overflow, worst; /* share of the steps that overflow; probability where it is highest */
    double share, energy; /* flushed of all tensors together: of the non-zero values, of the sum of squares */
    double whole_share;   /* of the values of the tensors that are `whole` */
    int wholes;
    /* fixed or dynamic */
    bool fixed;   /* a fixed scale lasts the horizon */
    double room;  /* octaves from the largest gradients to the limit at 2^k, beyond what alpha asks for */
    double lasts; /* steps until the drift has used them up; INFINITY */
    int window;   /* of a dynamic scale */
    ab_advise_rule rule[AB_ADVISE_RULES];
} ab_advise;

/* `document` is summarised; `level` names the level the advice is for, and with that which tensors are cast
 * (those of its cell; all if the document has no such cell). AB_INPUT if nothing usable was recorded: says
 * what to run. */
AB_MUST_CHECK ab_status ab_advise_make(const cJSON *document, const char *level, const ab_advise_goal *goal,
                                       ab_advise *advise);

/* The advice for people, and as keys of `object`. */
void ab_advise_print(const ab_advise *advise, const ab_advise_goal *goal, FILE *out);
void ab_advise_json(const ab_advise *advise, const ab_advise_goal *goal, cJSON *object);

/* What others' rules say (advise_rules.c). */
void ab_advise_rules(ab_advise *advise, const cJSON *level_cell);

/* ---- shared by the files of the advice ------------------------------------------------------- */

/* Whether the level casts the tensor of this name; yes if its cell is not there to say. */
bool ab_advise_is_cast(const cJSON *level_cell, const char *name);
/* Flushed of one tensor of the record at 2^octaves; between powers of two values are taken to be spread
 * evenly in a binade. */
void ab_advise_flushed(const ab_advise *advise, const cJSON *tensor, double octaves, double *count,
                       double *energy);
/* Of all cast tensors, as shares. */
void ab_advise_flush_at(const ab_advise *advise, const cJSON *level_cell, double octaves, double *share,
                        double *energy);
/* Steps that overflow at 2^octaves. */
ab_forecast ab_advise_overflow_at(const ab_advise *advise, const ab_series *series, double octaves);
/* The series of the cast tensors of one layer (NULL: all); false: too few columns. */
bool ab_advise_series_of(const ab_advise *advise, const cJSON *level_cell, const char *layer,
                         ab_series *series);

/* ---- receipt --------------------------------------------------------------------------------- */

/* What a run at the predicted scale showed: the only cell but O0 of `document`, at a scale that stays and
 * skips what overflows, all of whose steps were probed.
 *
 * Skips: a binomial interval (Clopper and Pearson) of the steps. Flushes: values of one step rise and fall
 * together, so the interval is that of as many values as would vary as much as the steps' shares do,
 * neighbours together (Korn and Graubard 1998). Compared are the tensors without zeros of their own, in which
 * a zero after the cast was flushed there or, being a product of flushed values, before: elsewhere the zeros
 * of a mask cannot be told from flushed ones. */
typedef struct ab_receipt {
    int steps, skipped;
    double expected;      /* skipped, of as many steps */
    double low, high;     /* of the share of skipped steps, 95 % */
    bool overflow_agrees; /* the predicted share lies in it */
    double values, lost, share, share_low, share_high;
    bool flush_agrees;
    double predicted, predicted_share;
    double loss_gap; /* NAN if not known */
} ab_receipt;

/* The receipt of a confirming run's document, for people, and as keys of `object`. make: AB_INPUT if the
 * document lacks what is compared. */
AB_MUST_CHECK ab_status ab_receipt_make(const cJSON *document, const ab_advise *advise, ab_receipt *receipt);
void ab_receipt_print(const ab_receipt *receipt, FILE *out);
void ab_receipt_json(const ab_receipt *receipt, cJSON *object);

AB_END_DECLS

#endif
