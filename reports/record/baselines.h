/* The O0 cells of a document, found in a time that does not grow with the number of cells. */
#ifndef AB_REPORTS_RECORD_BASELINES_H
#define AB_REPORTS_RECORD_BASELINES_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* An O0 cell; texts are borrowed from the document. */
typedef struct ab_baseline {
    const cJSON *cell;
    const char *model, *device;
    double seed;
    int index; /* of the cell in the document */
} ab_baseline;

typedef struct ab_baselines {
    ab_baseline *list; /* [count], by model, device, seed, index; owned */
    int count;
} ab_baselines;

/* Lists the O0 cells; perturbed baselines are none. The document must outlive the list, unchanged but for
 * summaries. */
AB_MUST_CHECK ab_status ab_baselines_create(const cJSON *document, ab_baselines *baselines);
void ab_baselines_free(ab_baselines *baselines);

/* Index of the O0 cell with which `cell` is compared (ab_summary_baseline says which), or -1. */
int ab_baselines_find(const ab_baselines *baselines, const cJSON *cell);

AB_END_DECLS

#endif
