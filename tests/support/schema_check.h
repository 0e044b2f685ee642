/* Whether a document follows a JSON Schema to the letter, unknown keys included. For tests. */
#ifndef AB_TESTS_SUPPORT_SCHEMA_CHECK_H
#define AB_TESTS_SUPPORT_SCHEMA_CHECK_H

#include "reports/record/schema.h"

#include <stdio.h>

/* True if it does. Else `why` (size bytes) says where it does not, or which keyword of the schema is not
 * supported. */
static inline bool ab_test_schema_validate(const cJSON *schema, const cJSON *document, char *why,
                                           size_t size) {
    if (ab_schema_check(schema, document, true, "document") == AB_OK) return true;
    snprintf(why, size, "%s", ab_error_message());
    return false;
}

#endif
