/* Steps that the device decides itself, several at once (cell.h: ab_cell_take, ab_cell_window). */
#ifndef AB_BENCH_TRAIN_CELL_WINDOW_H
#define AB_BENCH_TRAIN_CELL_WINDOW_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* Makes cell->window where the device can decide steps like the cell's; the log says why not. After
 * everything else of the cell was made. */
AB_MUST_CHECK ab_status ab_step_window_start(ab_cell *cell);

/* Frees it; nothing where there is none. */
void ab_step_window_stop(ab_cell *cell);

AB_END_DECLS

#endif
