/* What reductions over ranks would do to gradients: questions, answers, and their output forms. bench/ranks
 * fills the structs. */
#ifndef AB_REPORTS_RANKS_RANKS_RESULT_H
#define AB_REPORTS_RANKS_RANKS_RESULT_H

#include "kernels/collective/collective.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

enum { AB_RANKS_COUNTS = 32, AB_RANKS_RULES = 48, AB_RANKS_LABEL = 96 };

/* ---- options --------------------------------------------------------------------------------- */

typedef struct ab_ranks_rule {
    ab_reduction reduction; /* wire NULL: each tensor's own format ("as-is") */
} ab_ranks_rule;

typedef struct ab_ranks_question {
    ab_ranks_rule rule[AB_RANKS_RULES];
    int rules;
    int64_t count[AB_RANKS_COUNTS]; /* numbers of ranks, rising */
    int counts;
    double scale;        /* loss scale that the gradients are multiplied by first */
    double bucket_bytes; /* of one reduction; cut into one chunk for each rank */
    int64_t elements;    /* most elements to simulate, spread evenly; 0: all */
} ab_ranks_question;

/* ---- results --------------------------------------------------------------------------------- */

/* A reduction's result beside the mean in double. Shares are of the elements simulated whose mean is finite;
 * `error` and `bias` are over those whose result is finite too. */
typedef struct ab_ranks_outcome {
    double error;      /* |result - mean| / |mean|, Euclidean norms; NaN: the mean is 0 */
    double bias;       /* <result, mean> / <mean, mean> - 1 */
    double overflowed; /* share that became inf or NaN */
    double flushed;    /* share of the non-zero means that became 0 */
    double noise;      /* of the mini-batch: standard error of its mean / |mean| */
    int worst;         /* the tensor with the largest error; -1: none */
} ab_ranks_outcome;

typedef struct ab_ranks_tensor {
    char *name;    /* owned; valid UTF-8, may hold control characters */
    int64_t count; /* elements */
    int64_t simulated;
} ab_ranks_tensor;

typedef struct ab_ranks_result {
    const ab_ranks_question *question; /* borrowed */
    int micro_batches;                 /* files read, one each */
    int tensors, skipped;              /* skipped: not floating-point */
    ab_ranks_tensor *tensor;           /* owned; [tensors] */
    int64_t count, simulated;          /* elements of all tensors */
    int64_t not_finite;                /* simulated elements with an inf or NaN in a file, left out */
    double noise;                      /* of one micro-batch: root of the summed variances / |mean| */
    ab_ranks_outcome *outcome;         /* owned; [counts][rules], of all tensors together */
    ab_ranks_outcome *by_tensor;       /* owned; [counts][rules][tensors] */
} ab_ranks_result;

/* The outcome of all tensors for count[count] ranks by rule[rule]. */
static inline const ab_ranks_outcome *ab_ranks_at(const ab_ranks_result *result, int count, int rule) {
    return &result->outcome[count * result->question->rules + rule];
}

/* The number of ranks from which on the reduction's error exceeds the mini-batch's noise: interpolated
 * between the numbers simulated, on logarithmic axes. 0: at all of them; infinity: at none. */
double ab_ranks_crossing(const ab_ranks_result *result, int rule);

/* "ring bf16 pre". label[AB_RANKS_LABEL]. Returns `label`. */
const char *ab_ranks_label(const ab_ranks_rule *rule, char *label);

/* ---- output ---------------------------------------------------------------------------------- */

/* The document (reports/schema/ranks-1.schema.json), owned by the caller. NULL: out of memory. */
AB_MUST_CHECK cJSON *ab_ranks_document(const ab_ranks_result *result);

/* Prints the table and, for each reduction, where its error exceeds the mini-batch's noise. */
void ab_ranks_print(FILE *out, const ab_ranks_result *result);

/* Draws error against ranks into `folder`; `note` gets a static text if it could not be drawn, else NULL. */
AB_MUST_CHECK ab_status ab_ranks_plot(const cJSON *document, const char *folder, const char **note);

AB_END_DECLS

#endif
