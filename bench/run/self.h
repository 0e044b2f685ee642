/* Runs this program as a child process with other arguments, for commands that train. */
#ifndef AB_BENCH_RUN_SELF_H
#define AB_BENCH_RUN_SELF_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Runs this program and waits for it. argv ends with NULL; its stdout is discarded, its stderr is inherited.
 * Returns AB_OK for exit statuses up to `accepted` (1: a cell failed), AB_INTERRUPTED if it was interrupted,
 * AB_SYSTEM if it could not be started, else AB_CONFIG. Messages begin with `who` ("advise") and call the
 * child `what` ("the confirming run"). SIGINT, SIGTERM and SIGHUP are forwarded to the child meanwhile. */
AB_MUST_CHECK ab_status ab_run_self(const char *who, const char *what, char *const *argv, int accepted);

/* The same for a run whose document alone is wanted, and with it summarised. The run writes into a new folder
 * in TMPDIR (/tmp), which is removed afterwards, also when interrupted. argv is without --out; its options
 * must name no other file to write. The caller owns *document. */
AB_MUST_CHECK ab_status ab_run_self_record(const char *who, const char *what, char *const *argv, int accepted,
                                           cJSON **document);

/* For callers that must clean up: block these signals, so that only ab_run_self sees them; unblock them,
 * which delivers pending ones. Must not be nested. */
void ab_run_hold_signals(void);
void ab_run_release_signals(void);

AB_END_DECLS

#endif
