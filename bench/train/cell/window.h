/* Steps decided by the device, several per launch (cell.h: ab_cell_run_steps, ab_cell_window). */
#ifndef AB_BENCH_TRAIN_CELL_WINDOW_H
#define AB_BENCH_TRAIN_CELL_WINDOW_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* Creates cell->window if the device can decide the cell's steps; otherwise logs the reason. Call after all
 * other parts of the cell were created. */
AB_MUST_CHECK ab_status ab_step_window_start(ab_cell *cell);

/* Frees cell->window; a no-op if it is NULL. */
void ab_step_window_stop(ab_cell *cell);

AB_END_DECLS

#endif
