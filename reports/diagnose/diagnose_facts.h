/* Facts from the record that several rules use. Only ab_judge_overflow fills a verdict. */
#ifndef AB_REPORTS_DIAGNOSE_DIAGNOSE_FACTS_H
#define AB_REPORTS_DIAGNOSE_DIAGNOSE_FACTS_H

#include "kernels/ops/traits/op_traits.h"
#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

/* ---- non-finite values ----------------------------------------------------------------------- */

/* The first op that produced a non-finite value from finite inputs. */
typedef struct ab_first_nonfinite {
    bool known;
    const char *op, *type, *pass, *by; /* "": not recorded; pass: "forward", "backward" or "update" */
    const char *cause;  /* from the origin probe: "range_overflow", "mathematics", ...; or "" */
    const char *format; /* of the written value; or "" */
    int step;           /* AB_SINCE_UNKNOWN: not recorded */
    double read_largest;
    bool own; /* not a consequence of something earlier: in the first step, or near the limit in O0 too, or
                 from a stored 0 */
    bool to_come;                     /* seen in O0 only; the cell stopped short of it */
    char pointer[AB_VERDICT_POINTER]; /* relative to the cell, or to O0 if to_come */
} ab_first_nonfinite;

/* Read from probes.origin, else from the census of activations, else from nan_provenance. Overflows expected
 * of a dynamic loss scale are ignored, unless `expected` is true and there is nothing else. */
ab_first_nonfinite ab_first_nonfinite_of(const cJSON *cell, const char *half, bool expected);

/* Traits of first->op; 0 if not recorded. */
ab_traits ab_first_traits(const ab_case *facts, const ab_first_nonfinite *first);

/* Ops without a finite value at 0. */
enum { AB_TRAITS_OF_ZERO = AB_TRAIT_logarithm | AB_TRAIT_quotient | AB_TRAIT_root };

/* Adds it to a verdict as evidence and sets the layer. */
void ab_say_first_nonfinite(const ab_case *facts, const ab_first_nonfinite *first, ab_verdict *verdict);

/* The kind of op that overflowed in the forward pass of a cell whose O0 trains correctly. */
typedef enum ab_overflow_kind {
    AB_OVERFLOW_NONE,
    AB_OVERFLOW_ATTENTION, /* a product that a softmax reads, or attention itself */
    AB_OVERFLOW_NORM,      /* a norm, or the squares and means that a root reads */
    AB_OVERFLOW_EXP_LOG,
    AB_OVERFLOW_REDUCTION,
    AB_OVERFLOW_WEIGHT,
    AB_OVERFLOW_ACTIVATION /* any other */
} ab_overflow_kind;
ab_overflow_kind ab_overflow_of(const ab_case *facts, ab_first_nonfinite *first);

/* Fills the verdict of an overflow of that kind; false if there is none or of another kind. */
bool ab_judge_overflow(const ab_case *facts, ab_overflow_kind kind, ab_verdict *verdict);

/* ---- tensors that are cast ------------------------------------------------------------------- */

/* O0's tensor of the same name in probes.tensors; NULL if it has none. */
const cJSON *ab_baseline_tensor(const ab_case *facts, const cJSON *tensor);

/* Share of the energy that O0's gradients of a tensor, times this cell's loss scale, would lose in the half
 * format, from the exponents that O0 recorded. Independent of which steps of the sick cell were probed. NAN
 * if O0 has none. */
double ab_expected_flush(const ab_case *facts, const cJSON *tensor);

/* True if O0's largest gradient of a tensor, times `scale`, is within four octaves of the overflow limit
 * (samples miss the true maximum). */
bool ab_expected_overflow(const ab_case *facts, const cJSON *tensor, double scale);

/* The first step whose column of a tensor of probes.tensors has a count > 0 of `key` (flushed, overflowed);
 * AB_SINCE_UNKNOWN: none. */
int ab_first_step_with(const cJSON *tensor, const char *key);

/* ---- sizes ----------------------------------------------------------------------------------- */

/* From probes.<list>: number of values and sum of squares over the tensors of one kind ("": any), at the
 * first probed step (all: over the run). Energy is NAN if not recorded. */
typedef struct ab_tensor_sums {
    double values, energy;
} ab_tensor_sums;
ab_tensor_sums ab_tensor_sums_of(const cJSON *cell, const char *list, const char *kind, bool all);

/* 1 minus the energy of this cell's unscaled weight gradients over that of O0's, at the first step (same
 * weights, same batch); NAN if not recorded or if that step overflowed. */
double ab_gradient_deficit(const ab_case *facts);

/* Norm of the cell's unscaled gradients at the first step over that of its initial weights; NAN if not
 * recorded. */
double ab_relative_gradient(const cJSON *cell);

/* Root mean square norm of an update over the probed steps, relative to the norm of the initial weights; NAN
 * if not recorded. */
double ab_relative_update(const cJSON *cell);

/* Root mean square of the final weights over that of the initial ones; NAN if not recorded. In runs that
 * learn the weights grow by a few tens of percent. */
double ab_weight_growth(const cJSON *cell);

/* ---- symptoms -------------------------------------------------------------------------------- */

/* The cell itself fails: behind O0, non-finite losses, or skipping. */
bool ab_case_fails_alone(const ab_case *facts);

/* gap > 2 gap_limit. */
bool ab_case_far_behind(const ab_case *facts);

/* The scaler raises its scale after fewer than 20 clean steps, so frequent skips are expected. */
bool ab_case_short_window(const ab_case *facts);

/* The loss scale at step 0; 1 if not recorded. */
double ab_first_scale(const cJSON *cell);

/* ---- training -------------------------------------------------------------------------------- */

/* O0 of the record did not learn or diverged, so the half format is not the cause. */
bool ab_baseline_fails(const ab_case *facts);
/* O0 of the record is finite and did not learn, and the cell has no non-finite losses and no excess skips. */
bool ab_baseline_is_flat(const ab_case *facts);
/* Adds to the verdict as evidence that O0 fails. */
void ab_say_baseline_fails(const ab_case *facts, ab_verdict *verdict);

/* The first relu of O0's probes.signals of which at least `share` of the units are 0 for a whole batch at the
 * end; *place: its index there. NULL: none. */
const cJSON *ab_silent_relu(const ab_case *facts, double share, int *place);

/* Adds --steps to a remedy after which O0 should learn: the record cannot show that a short run is long
 * enough. */
void ab_ask_for_more_steps(const ab_case *facts, ab_verdict *verdict);

/* True if the run was configured to round sums of products to the half format after every addition. */
bool ab_case_accumulates_in_half(const ab_case *facts);

/* Writes into text what the record of an unexplained sick cell lacks and the options that record it. */
void ab_missing_evidence(const ab_case *facts, char *text, size_t size);

/* log(classes), the loss of a uniform prediction; INFINITY if there are no classes. */
double ab_loss_of_chance(const ab_case *facts);

AB_END_DECLS

#endif
