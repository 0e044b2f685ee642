/* Which cells of documents are the same cell. Compares no measurements. */
#ifndef AB_REPORTS_CELLS_H
#define AB_REPORTS_CELLS_H

#include <cjson/cJSON.h>

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

/* The cell of `document` that is `cell`, which may be of another document: the one with the same
 * config_digest (a digest of the resolved configuration); else the one with the same id, which is what
 * documents without digests have, and what a cell keeps when the run around it was configured in another way.
 * NULL: none. Borrowed from `document`. */
const cJSON *ab_cell_like(const cJSON *document, const cJSON *cell);

AB_END_DECLS

#endif
