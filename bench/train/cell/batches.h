/* Batches on their way to the input tensors: which samples, with which faults, and what is noticed of
 * them. */
#ifndef AB_BENCH_TRAIN_CELL_BATCHES_H
#define AB_BENCH_TRAIN_CELL_BATCHES_H

#include "bench/data/data.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"

AB_BEGIN_DECLS

typedef struct ab_batches {
    const ab_cell_memory *memory; /* borrowed */
    const ab_data *data;          /* borrowed; NULL: a cell that is only planned */
    ab_always_on_stats *stats;    /* borrowed: training batches are noted there */
    ab_normalize normalize;
    unsigned faults; /* AB_FAULTS_OF_DATA of the recipe */
    bool shuffled;
    uint64_t seed;
    ab_data_order order;
    int64_t *index; /* [batch]: samples of the batch under way; owned */
    void *samples;  /* where the host writes a batch: the input tensors, or */
    void *targets;  /* memory of its own that is uploaded */
} ab_batches;

/* `batches` must be all zero but for the borrowed pointers and the settings, which the caller sets. Free with
 * ab_batches_fini, also after an error and before `memory`. */
AB_MUST_CHECK ab_status ab_batches_init(ab_batches *batches);
void ab_batches_fini(ab_batches *batches);

/* Chooses the samples of training batch `number` of the run; of a batch of n samples from `first` on, in file
 * order, with the first one in the places that are left. */
void ab_batches_choose(ab_batches *batches, int64_t number);
void ab_batches_choose_range(ab_batches *batches, int64_t first, int64_t n);

/* Writes the samples that were chosen, with the data faults if they are for training. `step`: notes them as
 * that step's; -1: not noted (once is enough). AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_batches_write(ab_batches *batches, ab_split split, int64_t step, void *samples,
                                         void *targets);

/* The same into the input tensors, wherever they are. */
AB_MUST_CHECK ab_status ab_batches_load(ab_batches *batches, ab_split split, int64_t step);

AB_END_DECLS

#endif
