/* Checksums of the weights of several ranks, as a probe wrote them in the record of each
 * (probe.about.replicas), compared. */
#ifndef AB_REPORTS_RECORD_REPLICAS_H
#define AB_REPORTS_RECORD_REPLICAS_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* documents[count]: records of ranks of one run. *replicas: what a cell's "replicas" says (the schema), owned
 * by the caller; NULL if a rank has no checksums, or none of the same steps and tensors. */
AB_MUST_CHECK ab_status ab_replicas_of_records(const cJSON *const *documents, int count, cJSON **replicas);

AB_END_DECLS

#endif
