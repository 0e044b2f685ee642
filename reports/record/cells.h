/* Matches cells between documents. Compares no measurements. */
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

AB_END_DECLS

#endif
