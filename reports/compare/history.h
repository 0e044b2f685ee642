/* Results over time: one series per cell and metric from many result documents, and its change points.
 *
 * A series holds runs of the same cell with the same settings (data, batch, steps, threads, optimizer, lr)
 * on machines and builds with the same comparability key, ordered by start time. Times are noisy and are
 * searched with changes.h; losses, bytes and counts are exact, and every difference is a change. Changes
 * are reported with run and size, but not judged. */
#ifndef AB_REPORTS_COMPARE_HISTORY_H
#define AB_REPORTS_COMPARE_HISTORY_H

#include "kernels/core/status.h"
#include "reports/plot/plot.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_history ab_history;

/* An empty history; destroy(NULL) is a no-op. */
AB_MUST_CHECK ab_status ab_history_create(ab_history **history);
void ab_history_destroy(ab_history *history);

/* Adds the completed cells of a summarised document. A run (id and start) that is already present is
 * ignored: *added 0. */
AB_MUST_CHECK ab_status ab_history_add(ab_history *history, const cJSON *document, int *added);

/* Creates the history document, "ampbench-history", owned by the caller. `guard`: as in changes.h, for
 * noisy metrics. */
AB_MUST_CHECK ab_status ab_history_json(const ab_history *history, double guard, cJSON **json);

/* Prints that document as text. */
void ab_history_print(const cJSON *json, FILE *out);

/* Plot for ab_plot_write: one panel per series that is noisy or has changed. */
extern const ab_plot ab_plot_history;

AB_END_DECLS

#endif
