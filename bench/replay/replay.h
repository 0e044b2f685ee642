/* Loss scalers run over recorded gradients: the computation of `ampbench scaler --replay`. Output forms:
 * reports/replay.
 *
 * The replay goes from update to update. As long as a scaler takes and skips the steps that the recorded one
 * took and skipped, the weights are the same, and so are the gradients: the replay is exact. Where it takes a
 * step that was skipped, it goes on behind the recorded step that made the same update. Where it skips a step
 * that was taken, the weights stay, and the next batches are those recorded next, at most AB_REPLAY_REACH
 * further on. From the first such difference on it is a prediction, as the gradients depend on weights that
 * nobody trained. */
#ifndef AB_BENCH_REPLAY_REPLAY_H
#define AB_BENCH_REPLAY_REPLAY_H

#include "bench/amp/scaler/scaler.h"
#include "bench/replay/gradients.h"

AB_BEGIN_DECLS

enum { AB_REPLAY_REACH = 16 };

/* Runs one scaler, with the smallest and with the largest gradients that are possible. Dialects with a scale
 * for each layer cannot be run (AB_SEES_LAYER). */
AB_MUST_CHECK ab_status ab_replay_scaler(const ab_recorded *recorded, const ab_scaler_config *config,
                                         ab_replay_row *row);

/* The recorded run itself: its decisions and scales. */
AB_MUST_CHECK ab_status ab_replay_recorded(const ab_recorded *recorded, ab_replay_outcome *outcome);

/* Whether a dialect can be replayed. */
bool ab_replay_can(const ab_scaler_kind *kind);

/* All combinations of the values of `grid`, "window=100/2000,init=2^8..2^16", with the dialects that have the
 * keys; a dialect that has none of them stays as it is. AB_USAGE says what is wrong in it. *configs is owned
 * by the caller (free). */
AB_MUST_CHECK ab_status ab_replay_grid(const char *grid, const ab_scaler_config *base, int bases,
                                       ab_scaler_config **configs, int *count);

AB_END_DECLS

#endif
