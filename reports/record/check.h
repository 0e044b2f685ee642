/* The two halves of ab_result_check, apart for tests. */
#ifndef AB_REPORTS_RECORD_CHECK_H
#define AB_REPORTS_RECORD_CHECK_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Keys, types, ranges and allowed words: exactly what reports/schema/result-1.schema.json says, except that
 * unknown keys pass (a later minor version may add some). */
AB_MUST_CHECK ab_status ab_result_check_shape(const cJSON *document, const char *origin);

/* What a schema cannot say: counts that must add up, lengths that must agree, indices in range, unique ids.
 * For a document whose shape has been checked. */
AB_MUST_CHECK ab_status ab_result_check_sums(const cJSON *document, const char *origin);

AB_END_DECLS

#endif
