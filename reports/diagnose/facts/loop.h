/* What only the record of somebody's own training loop holds: what the loop stated, and its optimizers'
 * steps. */
#ifndef AB_REPORTS_DIAGNOSE_FACTS_LOOP_H
#define AB_REPORTS_DIAGNOSE_FACTS_LOOP_H

#include "reports/diagnose/facts/facts.h"
#include "reports/diagnose/facts/first_nonfinite.h"

AB_BEGIN_DECLS

/* The document, where its `probe` is of this cell; NULL: another run added the cell (--baseline, several
 * files), and what the loop stated of itself is not in the record. Everything below reads it there. */
const cJSON *ab_loop_document(const ab_facts *facts);

/* An entry of probe.facts. */
typedef struct ab_stated {
    bool known;
    const char *place;           /* borrowed; "" if it is about the run */
    double last, least, largest; /* NAN: not finite */
    int times, first_step;
    int index, entries; /* in probe.facts; entries of this name */
} ab_stated;

/* The entry of this name with the largest value. */
ab_stated ab_stated_of(const ab_facts *facts, const char *name);

/* The entry of this name and place; NULL: none. */
const cJSON *ab_loop_stated_at(const ab_facts *facts, const char *name, const char *place);

/* An argument of the model, or a target of the loss, that is not finite before any layer reads it
 * (nonfinite_inputs, nonfinite_input_rows of probe.facts). */
typedef struct ab_bad_input {
    bool known;
    const char *place; /* Class(argument) or function(target); borrowed */
    double share;      /* of its rows that hold one, in the step with most */
    double rows, of;   /* so many of so many rows in step first_step */
    int first_step;
    int index; /* in probe.facts */
} ab_bad_input;

/* The one of which most rows are such, as stated first. */
ab_bad_input ab_loop_bad_input(const ab_facts *facts);

/* A number of the first optimizer's steps (probe.groups[0]); 0 if there is no such record. */
double ab_loop_number(const ab_facts *facts, const char *key);

/* Whether the record is one of a training loop that a probe watched. */
bool ab_is_loop(const ab_facts *facts);

/* Size of the steps of O0 of a loop (its fp32 run, or itself; without one those of the loop), as a share of
 * the weights that they change, by the ledger of probed updates; if the rate was higher at the end than at
 * the last probed step, by so much larger. NAN: not recorded. */
double ab_loop_step_size(const ab_facts *facts);

/* A loop with a half format multiplies its loss by a number as large as a loss scale (hand_scale), steps with
 * the gradients as they are (loss_multiplied), and that makes its steps large enough to replace the weights
 * (loop_step): divided by the number they would not be. */
bool ab_loop_left_multiplied(const ab_facts *facts);

/* These losses did not fall: the last ones are not below the first ones by more than chance (mean and
 * standard errors of each twenty; or the first loss alone, by loop_scatter deviations of the last ones). By
 * differences of losses only: the loss of somebody's own loop may have any zero and any sign. */
bool ab_loop_is_flat(const ab_facts *facts, const ab_loss_facts *loss);

/* What the predictions of a loop's last looked-at steps cost, and what the best constant one would: the facts
 * loss_of_model, loss_of_constant, loss_of_constant_error. */
typedef struct ab_constant_loss {
    bool known;
    double model, constant, error; /* error: standard error of model - constant */
    const char *place;             /* borrowed: line of the loss */
    int index;                     /* of loss_of_constant in probe.facts */
} ab_constant_loss;
ab_constant_loss ab_loop_constant(const ab_facts *facts);

/* A loop's loss is not below that of the best constant prediction by more than chance, or by no more than
 * traces (1 - learned_share, of costs whose zero is known): it knows no sample. False where that was not
 * looked at. */
bool ab_loop_knows_nothing(const ab_facts *facts);

/* O0's loss has not fallen since a quarter of the run, by the same test. */
bool ab_loop_stalls(const ab_facts *facts);

/* The first layer of O0 (in the order of its parameters) whose output was 0 for all samples of all probed
 * steps, two or more, and whose class is a rectifier's; NULL: none. *place: in probes.activations. */
const cJSON *ab_loop_silent_relu(const ab_facts *facts, int *place);

/* O0's loss rose: for five steps it was further above the first than it ends below that, several times
 * (loop_rise), and further than the last losses scatter (loop_scatter). */
bool ab_loop_rises(const ab_facts *facts);

/* What made the first non-finite value of the run ran before the first step. */
bool ab_loop_made_before(const ab_facts *facts, const ab_first_nonfinite *first);

/* It did, and it divided by a spread or a norm of the data: squares, a standard deviation, a range. */
bool ab_loop_divided_by_spread(const ab_facts *facts, const ab_first_nonfinite *first);

/* It did, and it is data: no division by something else than a spread (a count, the degree of a node), unless
 * only some samples of an argument or target are not finite. */
bool ab_loop_made_data(const ab_facts *facts, const ab_first_nonfinite *first);

/* How the learning rate of a loop came to its end. */
typedef struct ab_rate_end {
    int since;         /* the first step from which all rates together are next to nothing of those of the run
                          (rate_rest); the number of steps: there is none such; -1: not recorded */
    int half, quarter; /* the steps from which half and a quarter of them are left */
    double first, largest, then, last; /* rates: of the first step, of any, of step `since`, of the last */
} ab_rate_end;

/* Reads it from probe.learning_rate. */
ab_rate_end ab_loop_rate_end(const ab_facts *facts);

/* The rate of a loop's first group where it is still in a warm-up when the run ends: it rose from each
 * quarter of the run to the next, and never fell; and the rate that its schedule began from
 * (base_learning_rate). base 0: it is none, or that rate is not known. */
typedef struct ab_warm_up {
    double first, last, base;
    int index; /* of base_learning_rate in probe.facts */
} ab_warm_up;
ab_warm_up ab_loop_warm_up(const ab_facts *facts);

/* Whether the loss had not settled when `step` began: it was still falling by more than chance, or, where
 * that is too early to tell, more than half of the first loss is left at the end. */
bool ab_loop_unsettled(const ab_facts *facts, int step);

/* Whether the loss fell until the rate was gone, however early it began to fall: with the sum of all rates as
 * the clock, the losses of its third quarter are above those after the end by more than chance, and by a
 * share of all that was learned (rate_fall); or, where that is too early to tell, more than half of the first
 * loss is left. */
bool ab_loop_cut_short(const ab_facts *facts, const ab_rate_end *end);

/* A rate that had fallen and rises again until the last step. */
typedef struct ab_rate_rise {
    int since;                  /* the step at which it was least */
    double before, least, last; /* rates: the largest before that, there, of the last step */
    double loss;                /* mean of the losses around that step */
} ab_rate_rise;

/* Whether the rate ends as high as it was (rate_back) after it had fallen to a tenth (warm_up_rate), and the
 * loss with it, above that of the low by more than chance. */
bool ab_loop_rate_rises_again(const ab_facts *facts, ab_rate_rise *rise);

/* No optimizer ever made a step (passes_without_backward, passes_without_step), and nothing that is not
 * finite is known that would be a reason: the loop does not call it, or not backward(). */
bool ab_loop_calls_no_step(const ab_facts *facts);

/* The parameter that overflowed first (probe.overflowed), and in how many steps; NULL: none did. */
const cJSON *ab_loop_overflow(const ab_facts *facts, int *index);

AB_END_DECLS

#endif
