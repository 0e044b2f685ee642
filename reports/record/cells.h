/* Matches cells between documents, and what all cells of one have in common. Compares no measurements. */
#ifndef AB_REPORTS_CELLS_H
#define AB_REPORTS_CELLS_H

#include "kernels/core/compiler.h"
#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Returns the cell of `document` that corresponds to `cell` (which may be from another document): the cell
 * with the same config_digest (a digest of the resolved configuration), else the cell with the same id.
 * Documents without digests have ids only; an id also survives changes to the run's configuration. NULL if
 * there is none. Borrowed from `document`. */
const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell);

/* Whether every cell with more than one process had the same losses in all of them: true, false, or null if
 * no cell has more than one. Owned by the caller. */
cJSON *ab_cells_deterministic(const cJSON *document);

/* Settings of a run (keys of a result's `config`) that two runs must share to be comparable. */

/* Returns true for all keys except: lists that generate cells (cells are matched one by one), the
 * measurement duration, and the scaler's constants, whose effect is judged in the losses and scales. */
bool ab_setting_counts(const char *key);

/* FNV-1a digest of all settings for which ab_setting_counts is true; independent of their order. Null,
 * false and empty values are left out, so that a setting added by a later version changes the digest only
 * where it is used. */
uint64_t ab_settings_digest(const cJSON *config);

/* The O0 cells of a document, found in a time that does not grow with the number of cells. */

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
