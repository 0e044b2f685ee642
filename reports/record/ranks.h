/* The records of a distributed run, one a rank, as one. */
#ifndef AB_REPORTS_RECORD_RANKS_H
#define AB_REPORTS_RECORD_RANKS_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Adds the record of another rank of the same run to *document, which becomes the record of all: counts and
 * exponents of tensors are added (exactly), extremes are the extremes of both, losses the mean over the
 * ranks that have one. Steps, scales and times stay those of the first; a warning in the document says where
 * ranks differ. `merged` is how many ranks are in it already; `path` and `other_path` are for messages.
 * AB_INPUT: not records of a probe, not of the same distributed run, a rank that is there already. */
AB_MUST_CHECK ab_status ab_result_add_rank(cJSON *document, const char *path, int merged, const cJSON *other,
                                           const char *other_path);

/* Loads the records of the ranks of one run, adds them to the first and compares the checksums of their
 * weights (replicas.h). The caller owns *document, also after an error. */
AB_MUST_CHECK ab_status ab_result_load_ranks(const char *const *paths, int count, cJSON **document);

AB_END_DECLS

#endif
