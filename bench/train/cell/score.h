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

/* Target class of row i of the logits of the loaded batch; -1: ignored. */
int64_t ab_score_class_of(const ab_batches *batches, int64_t i, int64_t classes);

/* Adds the rows of the batch that just ran forward; a row with a NaN counts as wrong. */
AB_MUST_CHECK ab_status ab_score_batch(ab_training_score *score, const ab_batches *batches);

AB_END_DECLS

#endif
