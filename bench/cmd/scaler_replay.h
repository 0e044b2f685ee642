/* `ampbench scaler --replay`: loss scalers on the gradients of a recorded run. */
#ifndef AB_BENCH_CMD_SCALER_REPLAY_H
#define AB_BENCH_CMD_SCALER_REPLAY_H

#include "bench/amp/scaler/scaler.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

enum { AB_REPLAY_PATHS = 64 };

/* All texts are borrowed; NULL: not given. */
typedef struct ab_replay_request {
    const char *path[AB_REPLAY_PATHS]; /* a result document, or the files of one log */
    int paths;
    const char *cell, *grid, *json, *plot;
    const ab_format *half;          /* NULL: the recorded one */
    const ab_scaler_config *config; /* [dialects]; 0: all that can be replayed */
    int dialects;
} ab_replay_request;

/* Reads, replays, and writes table, JSON and plot. */
AB_MUST_CHECK ab_status ab_replay_run(const ab_replay_request *request);

AB_END_DECLS

#endif
