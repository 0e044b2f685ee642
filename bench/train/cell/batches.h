/* Fills the input tensors with batches: chooses the samples, injects data faults, updates the always-on
 * statistics. */
#ifndef AB_BENCH_TRAIN_CELL_BATCHES_H
#define AB_BENCH_TRAIN_CELL_BATCHES_H

#include "bench/data/data.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

typedef struct ab_batches {
    const ab_cell_memory *memory; /* borrowed */
    const ab_data *data;          /* borrowed; NULL: plan only */
    ab_always_on_stats *stats;    /* borrowed: training batches are counted here */
    ab_normalize normalize;
    unsigned faults; /* AB_FAULTS_OF_DATA of the recipe */
    bool shuffled;
    uint64_t seed;
    ab_data_order order;
    bool finite;    /* samples are known to be, without being read */
    int64_t *index; /* [batch]: samples of the current batch; owned */
    void *samples;  /* where the host writes a batch: the input tensors or */
    void *targets;  /* staging memory that is uploaded */
} ab_batches;

/* `batches` must be all zero except the borrowed pointers and the settings, which the caller sets. Free with
 * ab_batches_fini, also after an error and before `memory`. */
AB_MUST_CHECK ab_status ab_batches_init(ab_batches *batches);
void ab_batches_fini(ab_batches *batches);

/* ab_batches_choose: the samples of training batch `number` of the run. ab_batches_choose_range: n samples
 * from `first` in file order; remaining places of the batch repeat the first sample. */
void ab_batches_choose(ab_batches *batches, int64_t number);
void ab_batches_choose_range(ab_batches *batches, int64_t first, int64_t n);

/* ab_batches_choose_spread: samples first, first + step, first + 2 step, ... of the split, for a whole batch.
 */
void ab_batches_choose_spread(ab_batches *batches, int64_t first, int64_t step);

/* Writes the chosen samples, with the data faults if they are for training. */
void ab_batches_write(ab_batches *batches, ab_split split, void *samples, void *targets);

/* The same into `samples` and `targets` of the batches and the input tensors, on the host or the device;
 * unless somebody will `read` the samples in fp32, rounded to 16 bits where a walk does nothing else with
 * them. */
AB_MUST_CHECK ab_status ab_batches_load(ab_batches *batches, ab_walk *walk, ab_split split, bool read);

/* Whether ab_batches_count reads the samples. */
bool ab_batches_are_counted(const ab_batches *batches);

/* Counts what was written of the chosen training samples in the always-on statistics of `step`. AB_NO_MEMORY.
 */
AB_MUST_CHECK ab_status ab_batches_count(ab_batches *batches, int64_t step, const void *samples,
                                         const void *targets);

/* The chosen training samples' targets as ab_batches_load writes them; the input tensor is not
 * valid afterwards. */
AB_MUST_CHECK ab_status ab_batches_load_targets(ab_batches *batches, ab_walk *walk);

AB_END_DECLS

#endif
