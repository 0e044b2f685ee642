/* What the record says of a cell: quantities, computed once or on demand. Decides nothing.
 *
 * O0 is the cell of the same document at level O0 (ab_cells_baseline). */
#ifndef AB_REPORTS_DIAGNOSE_FACTS_FACTS_H
#define AB_REPORTS_DIAGNOSE_FACTS_FACTS_H

#include "kernels/format/format.h"
#include "reports/diagnose/thresholds/thresholds.h"
#include "reports/record/cells.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

enum { AB_STEP_UNKNOWN = -1 };

/* ---- a cell ---------------------------------------------------------------------------------- */

/* A cell's losses: steps with NaN or inf, and how the loss changed. */
typedef struct ab_loss_facts {
    int steps;           /* trained steps */
    int nonfinite;       /* losses that are NaN or inf */
    int first_nonfinite; /* step; -1: none */
    double first, final; /* first loss; mean of the last 20 as in the summary; NAN if not finite */
    double largest;      /* finite one */
    double highest;      /* highest mean of five losses in a row after the first; NAN: no five were finite */
    double sustained;    /* highest median of five: a level that the loss stayed at, not a spike */
    double begin,
        begin_error; /* mean of the first 20 losses (of short runs the first half); standard error */
    double quarter, quarter_error; /* the same of those from a quarter of the run on */
    double spread;                 /* standard deviation of the last 20; NAN: of fewer than 2 finite ones */
} ab_loss_facts;

typedef struct ab_skip_facts {
    bool dynamic;       /* a scaler changes the scale */
    double first_scale; /* scale at step 0 */
    double last_scale, least_scale, largest_scale;
    int skipped;
    int late_from, late,
        late_steps;  /* late: after the search for the first scale and the run's first quarter */
    int loss_finite; /* skipped steps whose loss was finite: the backward pass overflowed */
    double window;   /* clean steps before a growth */
} ab_skip_facts;

/* A cell and the O0 cell that it is compared with. Points into the document. */
typedef struct ab_facts {
    const cJSON *document, *cell,
        *baseline;             /* baseline: NULL if there is none; the cell itself if it is O0 */
    int index, baseline_index; /* in cells[]; baseline_index: -1 if there is none */
    const ab_format *half;
    const ab_thresholds *limits; /* what the rules compare with */
    ab_loss_facts loss, baseline_loss;
    ab_skip_facts skip;
    double gap;       /* loss gap to O0; NAN: not known */
    double skip_cost; /* decrease of O0's loss over as many last steps as were skipped */
} ab_facts;

/* The facts of cells[index] of a summarised document; keeps `limits`, not `cells`. AB_INPUT if the half
 * format is unknown.
 */
AB_MUST_CHECK ab_status ab_facts_of(const ab_cells *cells, int index, const ab_thresholds *limits,
                                    ab_facts *facts);

/* Writes why O0 is no fp32 reference: what it was asked to change by name, or, in documents whose options
 * acted on O0 too, those options. "" if it is one, or if there is no O0. */
void ab_facts_reference(const ab_facts *facts, char *text, size_t size);

/* Difference of the first loss from O0's, of the same weights and batch, as a share of O0's; NAN if not
 * known. */
double ab_facts_first_shift(const ab_facts *facts);

/* Difference of O0's loss on test batches with the targets of other samples from that with their own, in
 * standard errors of a network that knows no targets; NAN: not recorded. */
double ab_facts_knows_targets(const ab_facts *facts);

/* What O0 learned: its first loss, or that of a uniform prediction if lower, minus its final loss. */
double ab_facts_learned(const ab_facts *facts);

/* O0's loss `steps` before its end minus its final loss; at least 0. */
double ab_facts_cost_of_steps(const ab_facts *facts, int steps);

/* Standard error of the mean difference of the last losses from O0's, batch by batch; 0: not known. */
double ab_facts_gap_error(const ab_facts *facts);

/* The part of the loss gap that being a few steps late explains (gap_later), with the cost of skipped steps.
 */
double ab_facts_gap_lateness(const ab_facts *facts);

/* Skipped steps at the last scale. */
int ab_facts_skipped_at_last_scale(const ab_facts *facts);

/* The scale is at its floor: the last scale is the least, and the run skipped steps at it several times
 * (floor_times) as long as at the scale before, from which it fell; or it never changed. */
bool ab_facts_at_floor(const ab_facts *facts);

/* The scaler raises its scale after few clean steps (short_window), so frequent skips are expected. */
bool ab_facts_short_window(const ab_facts *facts);

/* ---- formats --------------------------------------------------------------------------------- */

/* True if the weights, and the updates stored into them, are in the half format: no fp32 masters, and no
 * level whose half layers read fp32 weights (policy.master_weights is null there). */
bool ab_facts_half_weights(const ab_facts *facts);

/* The format of batch norms' running statistics: as configured, or that of a model that is cast as a whole.
 */
const char *ab_facts_statistics_format(const ab_facts *facts);

/* True if any op runs in the half format. */
bool ab_facts_uses_half(const ab_facts *facts);

/* True if the run was configured to round sums of products to the half format after every addition. */
bool ab_facts_accumulates_in_half(const ab_facts *facts);

/* ---- tensors that are cast ------------------------------------------------------------------- */

/* Share of a tensor's energy (sum of squares) in values that the cast flushes to zero, from the exponents
 * recorded for a tensor of probes.tensors. An estimate: values are taken to be uniform within a binade. NAN
 * if there are no exponents. */
double ab_facts_flushed_energy(const ab_facts *facts, const cJSON *tensor);

/* O0's tensor of the same name in probes.tensors; NULL if it has none. */
const cJSON *ab_baseline_tensor(const ab_facts *facts, const cJSON *tensor);

/* Share of the energy that O0's gradients of a tensor, times this cell's loss scale, would lose in the half
 * format, from the exponents that O0 recorded. Independent of which steps of the sick cell were probed. NAN
 * if O0 has none. */
double ab_expected_flush(const ab_facts *facts, const cJSON *tensor);

/* A size from which an overflow is possible: four octaves below the overflow limit. Samples of rows and steps
 * miss the largest value, and O0's training differs. Exploding weights cross them within a few steps. */
double ab_near_overflow(const ab_facts *facts);

/* True if O0's largest gradient of a tensor, times `scale`, is within four octaves of the overflow limit
 * (samples miss the true maximum). */
bool ab_expected_overflow(const ab_facts *facts, const cJSON *tensor, double scale);

/* The first step whose column of a tensor of probes.tensors has a count > 0 of `key` (flushed, overflowed);
 * AB_STEP_UNKNOWN: none. */
int ab_first_step_with(const cJSON *tensor, const char *key);

/* ---- reductions over ranks ------------------------------------------------------------------- */

/* What the reduction over simulated ranks did, over all tensors of cell.reduction: shares of the
 * contributions that became 0 or not finite as they were sent, and of the means that became 0 or not finite;
 * error and bias relative to the mean (Euclidean norm; along it). All NAN where nothing was recorded.
 * worst[4]: the layers with the largest error, and with most sent_flushed, overflowed, sent_overflowed; "" if
 * none. */
typedef struct ab_reduction_facts {
    double sent_flushed, sent_overflowed, flushed, overflowed, error, bias;
    const char *worst_error, *worst_sent_flushed, *worst_overflowed, *worst_sent_overflowed;
} ab_reduction_facts;
ab_reduction_facts ab_reduction_facts_of(const cJSON *cell);

/* The format on the wire where it is a half one, for this cell's gradients; NULL: fp32, or one rank. */
const ab_format *ab_facts_half_wire(const ab_facts *facts);

/* ---- sizes ----------------------------------------------------------------------------------- */

/* From probes.<list>: number of values and sum of squares over the tensors of one kind ("": any), at the
 * first probed step (all: over the run). Energy is NAN if not recorded. */
typedef struct ab_tensor_sums {
    double values, energy;
} ab_tensor_sums;
ab_tensor_sums ab_tensor_sums_of(const cJSON *cell, const char *list, const char *kind, bool all);

/* The loss scale at step 0; 1 if not recorded. */
double ab_first_scale(const cJSON *cell);

/* 1 minus the energy of this cell's unscaled weight gradients over that of O0's, at the first step (same
 * weights, same batch); NAN if not recorded, if that step overflowed, or if accumulated gradients are divided
 * by the loss scale more than once (unscaled_times), so that only the last micro-batch is left of them. */
double ab_gradient_deficit(const ab_facts *facts);

/* Norm of the cell's unscaled gradients at the first step over that of its initial weights; NAN if not
 * recorded. */
double ab_relative_gradient(const cJSON *cell);

/* Root mean square norm of an update over the probed steps, relative to the norm of the initial weights; NAN
 * if not recorded. A probe's record of a loop has no initial weights: there those of the first probed steps;
 * both as root mean squares of elements that are not 0. */
double ab_relative_update(const cJSON *cell);

/* Root mean square of the final weights over that of the initial ones, of a loop those of the last and first
 * probed steps; NAN if not recorded. In runs that learn the weights grow by a few tens of percent. */
double ab_weight_growth(const cJSON *cell);

/* ---- signals and classes --------------------------------------------------------------------- */

/* The gradient of O0's logits in its probes.tensors, if a single classification loss reads them; else NULL.
 */
const cJSON *ab_facts_logits(const ab_facts *facts);

/* Number of classes of the data; for next-token prediction the width of O0's logits. 0: neither is known. */
double ab_facts_classes(const ab_facts *facts);
/* Whether the classification loss is a sum over the rows: no constant bounds it. */
bool ab_facts_summed(const ab_facts *facts);

/* O0's loss, in the units of the run's losses, of a prediction that knows no sample. constant: of the
 * constant that suits the targets best. uniform: the same, but with one classification loss that of a uniform
 * prediction, log(classes) by itself. Records without constant losses: log(classes) for both. INFINITY: not
 * known. */
double ab_loss_of_constant(const ab_facts *facts);
double ab_loss_of_uniform(const ab_facts *facts);

/* The test loss of a cell, of classifiers a cross entropy, in the units of the run's losses; NAN: not
 * recorded. */
double ab_facts_test_loss(const ab_facts *facts, const cJSON *cell);

/* By how much O0's loss grows if its only classification loss grows by one; 1 if not recorded. */
double ab_facts_loss_factor(const ab_facts *facts);

/* The first relu of O0's probes.signals of which at least `share` of the units are 0 for a whole batch at the
 * end; *place: its index there. NULL: none. */
const cJSON *ab_silent_relu(const ab_facts *facts, double share, int *place);

AB_END_DECLS

#endif
