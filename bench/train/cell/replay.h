/* Running the step under way a second time to look at it. */
#ifndef AB_BENCH_TRAIN_CELL_REPLAY_H
#define AB_BENCH_TRAIN_CELL_REPLAY_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* Replays a step that ended in no numbers (`nonfinite`, or its loss) for the watch, if that asks for it;
 * result->replayed says so. The gradients and the result have the same bits as before. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_replay_if_asked(ab_cell *cell, bool nonfinite, ab_step_result *result);

AB_END_DECLS

#endif
