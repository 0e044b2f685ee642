/* The two parts of ab_result_check, declared separately for tests. */
#ifndef AB_REPORTS_RECORD_CHECK_H
#define AB_REPORTS_RECORD_CHECK_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Keys, types, ranges and allowed values, exactly as in reports/schema/result-1.schema.json, except that
 * unknown keys are accepted (a later minor version may add keys). */
AB_MUST_CHECK ab_status ab_result_check_shape(const cJSON *document, const char *origin);

/* Constraints that a schema cannot express: sums of counts, matching lengths, indices in range, unique
 * ids. The shape must have been checked before. */
AB_MUST_CHECK ab_status ab_result_check_sums(const cJSON *document, const char *origin);

AB_END_DECLS

#endif
