/* This program once more, with other words: what commands do that train to see. */
#ifndef AB_BENCH_RUN_SELF_H
#define AB_BENCH_RUN_SELF_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

/* Runs this program to its end. argv ends with NULL; its standard output is thrown away, what it says on
 * stderr is seen. Exit statuses up to `accepted` (1: a cell failed) are AB_OK; AB_INTERRUPTED if it was, else
 * AB_CONFIG; AB_SYSTEM if it could not be started. Messages begin with `who` ("advise") and call it `what`
 * ("the confirming run"). SIGINT, SIGTERM and SIGHUP that come meanwhile are passed on to it. */
AB_MUST_CHECK ab_status ab_run_self(const char *who, const char *what, char *const *argv, int accepted);

/* For callers that have something to clean up: keeps these signals back, so that only ab_run_self notices
 * them; and lets what came since take effect. Not nested. */
void ab_run_hold_signals(void);
void ab_run_release_signals(void);

AB_END_DECLS

#endif
