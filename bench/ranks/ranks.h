/* Simulated reductions of measured gradients over any number of ranks: the computation of `ampbench ranks`.
 * Output forms: reports/ranks.
 *
 * Each file holds the gradients of one micro-batch. Rank r gets one of the M micro-batches: ranks are dealt
 * in rounds of M, each round in a random order of its own (Philox), so that any N is possible, the mean is
 * known, and gradients differ between ranks as much as they really do between micro-batches. Beyond M ranks
 * micro-batches repeat: an extrapolation, and said so. Results do not depend on the number of threads. */
#ifndef AB_BENCH_RANKS_RANKS_H
#define AB_BENCH_RANKS_RANKS_H

#include "reports/ranks/ranks_result.h"

AB_BEGIN_DECLS

typedef struct ab_ranks_request {
    const char **file; /* borrowed, like all texts here */
    int files;
    ab_ranks_question question;
    void (*progress)(int done, int all); /* after each tensor and number of ranks; NULL: none */
} ab_ranks_request;

/* Reads the files and simulates. AB_USAGE for fewer than two files; AB_INPUT for an invalid file, for one
 * without a tensor of the first or with another shape (both named), and where no tensor is floating-point;
 * AB_NO_MEMORY, before the work, if the micro-batches of the largest tensor do not fit. The caller frees the
 * result with ab_ranks_free, also after a failure. `request` is borrowed by the result. */
AB_MUST_CHECK ab_status ab_ranks_run(const ab_ranks_request *request, ab_ranks_result *result);
void ab_ranks_free(ab_ranks_result *result);

/* micro[r] for ranks [0, ranks): the micro-batch, below `micro_batches`, of each rank. */
void ab_ranks_deal(int micro_batches, int64_t ranks, int32_t *micro);

AB_END_DECLS

#endif
