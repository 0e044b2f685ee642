/* The accuracy of a training step on its own batches. Reads values only; counted where a record is written.
 */
#ifndef AB_BENCH_TRAIN_CELL_SCORE_H
#define AB_BENCH_TRAIN_CELL_SCORE_H

#include "bench/train/cell/batches.h"

AB_BEGIN_DECLS

/* Training accuracy: rows of logits of the current step. `logits` NULL: not counted. */
typedef struct ab_training_score {
    float *logits; /* room for those of one batch; owned */
    int64_t correct, count;
} ab_training_score;

/* How the loss that compares logits with class ids treats classes: weight.value NULL: all alike. */
typedef struct ab_class_terms {
    ab_floats weight; /* of each class; borrowed from the network */
    double smoothing; /* label_smoothing */
    int64_t ignored;  /* ignore_index */
} ab_class_terms;

/* The terms of the network's scored loss; all classes alike if none is scored. */
ab_class_terms ab_class_terms_of(const ab_net *net);

/* Target class of row i of the logits of the loaded batch; -1: the loss ignores the row. `ignored`: of the
 * terms. */
int64_t ab_score_class_of(const ab_batches *batches, int64_t i, int64_t classes, int64_t ignored);

/* Adds the rows of the batch that just ran forward; a row with a NaN counts as wrong. */
AB_MUST_CHECK ab_status ab_score_batch(ab_training_score *score, const ab_batches *batches);

AB_END_DECLS

#endif
