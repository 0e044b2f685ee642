/* What several rules ask of a record. Reads, judges nothing. */
#ifndef AB_REPORTS_DIAGNOSE_DIAGNOSE_FACTS_H
#define AB_REPORTS_DIAGNOSE_DIAGNOSE_FACTS_H

#include "kernels/ops/traits/op_traits.h"
#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

/* ---- not numbers ----------------------------------------------------------------------------- */

/* The first place that made a value that is no number of finite ones. */
typedef struct ab_first_nonfinite {
    bool known;
    const char *op, *type, *pass,
        *by;            /* "" where the record does not say; pass: "forward", "backward" or "update" */
    const char *cause;  /* of the origin probe: "range_overflow", "mathematics", ...; "" */
    const char *format; /* of what was written; "" */
    int step;           /* AB_SINCE_UNKNOWN where the record does not say */
    double read_largest;
    bool own; /* not what something before it led to: of the first step, or near the limit in O0 too, or of a
                 0 that was stored */
    bool to_come;                     /* in O0 only: the cell has not come so far */
    char pointer[AB_VERDICT_POINTER]; /* below the cell, or below O0 if it is to come */
} ab_first_nonfinite;

/* From probes.origin, else the census of activations, else nan_provenance. Overflows that a reacting loss
 * scale is expected to make are left out, unless nothing else is there and `expected` asks for them. */
ab_first_nonfinite ab_first_nonfinite_of(const cJSON *cell, const char *half, bool expected);

/* Traits of the op that it names; 0 where the record does not say. */
ab_traits ab_first_traits(const ab_case *facts, const ab_first_nonfinite *first);

/* Ops that have no finite value at 0. */
enum { AB_TRAITS_OF_ZERO = AB_TRAIT_logarithm | AB_TRAIT_quotient | AB_TRAIT_root };

/* Adds it to a verdict as evidence, with the layer. */
void ab_say_first_nonfinite(const ab_case *facts, const ab_first_nonfinite *first, ab_verdict *verdict);

/* What kind of op overflowed in the forward pass of a cell whose O0 is sound. */
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

/* The whole verdict of an overflow of that kind: false if it is another. */
bool ab_judge_overflow(const ab_case *facts, ab_overflow_kind kind, ab_verdict *verdict);

/* ---- tensors that are cast ------------------------------------------------------------------- */

/* O0's tensor of the same name in probes.tensors; NULL if it has none. */
const cJSON *ab_baseline_tensor(const ab_case *facts, const cJSON *tensor);

/* What fp32's own gradients of a tensor, times this cell's loss scale, would lose in the half format: a share
 * of their energy, from the exponents that O0 recorded. It does not depend on which steps of the sick cell
 * were looked at. NAN without. */
double ab_expected_flush(const ab_case *facts, const cJSON *tensor);

/* The same for the other end: the largest of fp32's own gradients of a tensor, times this scale, comes within
 * four octaves of the limit: samples miss the largest of all. */
bool ab_expected_overflow(const ab_case *facts, const cJSON *tensor, double scale);

/* The first step in whose column a tensor of probes.tensors counted a `key` (flushed, overflowed);
 * AB_SINCE_UNKNOWN: in none. */
int ab_first_step_with(const cJSON *tensor, const char *key);

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Of probes.<list>: sums over tensors of one kind ("" any) of values and of their squares, at the first
 * probed step (all: over the run). Energy is NAN where the record has none. */
typedef struct ab_tensor_sums {
    double values, energy;
} ab_tensor_sums;
ab_tensor_sums ab_tensor_sums_of(const cJSON *cell, const char *list, const char *kind, bool all);

/* Share of the energy of O0's weight gradients at the first step (same weights, same batch) that this cell's
 * lack, the loss scale taken out; NAN where the record does not say, or that step overflowed. */
double ab_gradient_deficit(const ab_case *facts);

/* Norm of the first step's gradients over that of the weights in O0; NAN without. */
double ab_relative_gradient(const cJSON *cell);

/* Norm of the update of a step over that of the weights, as a mean over the probed steps; NAN without. */
double ab_relative_update(const cJSON *cell);

/* How many times as large the weights are at the end as at the beginning (root mean squares); NAN where the
 * record does not say. Those of runs that learn become a few tens of percent larger. */
double ab_weight_growth(const cJSON *cell);

/* ---- symptoms -------------------------------------------------------------------------------- */

/* Sick in itself, beside a sound O0: behind it, without numbers, or skipping. */
bool ab_case_fails_alone(const ab_case *facts);

/* Behind it by twice what is allowed. */
bool ab_case_far_behind(const ab_case *facts);

/* A scaler that raises its scale so often that its skips are no news: after fewer than 20 clean steps. */
bool ab_case_short_window(const ab_case *facts);

/* The loss scale in force at step 0; 1 where the record has none. */
double ab_first_scale(const cJSON *cell);

/* ---- training -------------------------------------------------------------------------------- */

/* O0 of the record fails, so that nothing half is to blame; says so as evidence. */
bool ab_baseline_fails(const ab_case *facts);
/* O0 of the record is finite and did not learn, and the cell does nothing worse. */
bool ab_baseline_is_flat(const ab_case *facts);
void ab_say_baseline_fails(const ab_case *facts, ab_verdict *verdict);

/* The first relu of O0's probes.signals with at least such a share of units that are 0 for a whole batch at
 * the end, and its place there; NULL: none. */
const cJSON *ab_silent_relu(const ab_case *facts, double share, int *place);

/* Adds --steps to a remedy after which O0 itself should learn: nothing in the record shows that a short run's
 * steps are enough. */
void ab_ask_for_more_steps(const ab_case *facts, ab_verdict *verdict);

/* Sums of products are rounded to the half format at every step, as the run was asked to. */
bool ab_case_accumulates_in_half(const ab_case *facts);

/* What the record of a sick cell that no rule explains lacks, and the options that would record it. */
void ab_missing_evidence(const ab_case *facts, char *text, size_t size);

/* log(classes), the loss of knowing nothing; INFINITY if there are no classes. */
double ab_loss_of_chance(const ab_case *facts);

AB_END_DECLS

#endif
