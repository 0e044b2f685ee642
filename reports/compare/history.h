/* Results over time: a series for every cell and metric out of many result documents, and where it changed.
 *
 * A series holds runs of the same cell with the same settings (data, batch, steps, threads, optimizer, lr) on
 * machines and builds with the same comparability key, in order of their start. Times scatter and are
 * searched as changes.h says; losses, bytes and counts do not, and every difference is a change. Nothing here
 * judges: a change names the run and its size. */
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

/* Takes the cells that ended well of a summarised document. A run (id and start) that is there already is
 * left out: *added 0. */
AB_MUST_CHECK ab_status ab_history_add(ab_history *history, const cJSON *document, int *added);

/* The whole as a document of its own, "ampbench-history", owned by the caller. `guard`: as in
 * changes.h, for the metrics that scatter. */
AB_MUST_CHECK ab_status ab_history_json(const ab_history *history, double guard, cJSON **json);

/* That document for people. */
void ab_history_print(const cJSON *json, FILE *out);

/* Its plot, for ab_plot_write: series that scatter or changed, a panel each. */
extern const ab_plot ab_plot_history;

AB_END_DECLS

#endif
