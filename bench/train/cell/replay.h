/* Replays the current step so that it can be observed. */
#ifndef AB_BENCH_TRAIN_CELL_REPLAY_H
#define AB_BENCH_TRAIN_CELL_REPLAY_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* Replays a non-finite step (`nonfinite`, or its loss) if the watch requests it, and sets result->replayed.
 * Gradients and result keep the same bits. Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_replay_if_asked(ab_cell *cell, bool nonfinite, ab_step_result *result);

AB_END_DECLS

#endif
