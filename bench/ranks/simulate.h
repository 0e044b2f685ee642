/* One tensor's gradients reduced over one number of ranks by one rule, block by block on all threads. */
#ifndef AB_BENCH_RANKS_SIMULATE_H
#define AB_BENCH_RANKS_SIMULATE_H

#include "kernels/collective/collective.h"

AB_BEGIN_DECLS

enum { AB_RANKS_BLOCK = 1024 };

/* Sums over elements; added in the order of the blocks, so independent of threads. */
typedef struct ab_ranks_sums {
    double error2, dot, size2; /* of elements whose result is finite */
    double mean2;              /* of all with finite contributions */
    double variance;           /* of one micro-batch, over the micro-batches */
    int64_t finite, not_finite, overflowed, nonzero, flushed;
} ab_ranks_sums;

/* into += from */
void ab_ranks_sums_add(ab_ranks_sums *into, const ab_ranks_sums *from);

typedef struct ab_ranks_job {
    const float *value; /* [micro_batches][count] */
    int micro_batches;
    int64_t count, position; /* position: of element 0 in the flat gradient */
    int64_t stride;          /* every stride-th block of AB_RANKS_BLOCK elements is simulated */
    int64_t bucket;          /* elements of a reduction, from position 0 on; at least 1 */
    float scale;
    ab_reduction reduction;
    int64_t ranks;
    const int32_t *micro; /* [ranks]: whose gradients a rank has */
} ab_ranks_job;

/* Elements of [0, count) that a stride selects. */
int64_t ab_ranks_selected(int64_t count, int64_t stride);

/* Simulates; *sums is overwritten. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_ranks_simulate(const ab_ranks_job *job, ab_ranks_sums *sums);

AB_END_DECLS

#endif
