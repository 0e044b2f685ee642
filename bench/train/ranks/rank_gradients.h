/* The gradients of several simulated ranks between their backward passes and the unscaling: kept, then
 * reduced in the order and with the roundings of the named scheme into the tensors that the step goes on
 * with. One process computes the ranks one after the other from the same weights. */
#ifndef AB_BENCH_TRAIN_RANKS_RANK_GRADIENTS_H
#define AB_BENCH_TRAIN_RANKS_RANK_GRADIENTS_H

#include "bench/train/recipe.h"
#include "bench/train/update/gradients.h"

AB_BEGIN_DECLS

typedef struct ab_rank_gradients {
    const ab_rank_recipe *recipe;  /* borrowed */
    const ab_gradients *gradients; /* borrowed: item[].from are the tensors that are sent */
    float *value;                  /* [ranks][count]: as sent, in reverse order of the parameters; owned */
    int64_t *first;                /* [items]: element of `value` where a gradient begins; owned */
    int64_t count;                 /* elements of all gradients */
} ab_rank_gradients;

/* `ranks` must be all zero. Does nothing if recipe->count is below 2. Errors: AB_NO_MEMORY; AB_USAGE if a
 * gradient's format cannot be sent. ab_rank_gradients_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_rank_gradients_init(ab_rank_gradients *ranks, const ab_rank_recipe *recipe,
                                               const ab_gradients *gradients);
void ab_rank_gradients_fini(ab_rank_gradients *ranks);

/* Call after a rank's last backward pass: keeps its gradients as they are sent. */
AB_MUST_CHECK ab_status ab_rank_gradients_keep(ab_rank_gradients *ranks, int64_t rank);

/* Call after the last rank: writes the mean over ranks into the gradient tensors. */
AB_MUST_CHECK ab_status ab_rank_gradients_reduce(ab_rank_gradients *ranks);

AB_END_DECLS

#endif
