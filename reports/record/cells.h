/* Matches cells between documents, and what all cells of one have in common. Compares no measurements. */
#ifndef AB_REPORTS_CELLS_H
#define AB_REPORTS_CELLS_H

#include <cjson/cJSON.h>

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* Returns the cell of `document` that corresponds to `cell` (which may be from another document): the cell
 * with the same config_digest (a digest of the resolved configuration), else the cell with the same id.
 * Documents without digests have ids only; an id also survives changes to the run's configuration. NULL if
 * there is none. Borrowed from `document`. */
const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell);

/* Whether every cell with more than one process had the same losses in all of them: true, false, or null if
 * no cell has more than one. Owned by the caller. */
cJSON *ab_cells_deterministic(const cJSON *document);

AB_END_DECLS

#endif
