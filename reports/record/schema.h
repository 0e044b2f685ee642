/* Validator for the subset of JSON Schema 2020-12 that our schemas use: $ref to "#/$defs/...", type, const,
 * enum, minimum, maximum, exclusiveMinimum, required, properties, additionalProperties, items, minItems,
 * maxItems, if/then. An unknown keyword is an error and never ignored, so that everything in a schema is
 * checked. */
#ifndef AB_REPORTS_RECORD_SCHEMA_H
#define AB_REPORTS_RECORD_SCHEMA_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* Checks `value`. If strict is false, "additionalProperties": false is not enforced (a reader ignores
 * unknown keys). AB_INPUT names `origin`, the JSON path, what was expected and what was found; AB_INTERNAL
 * names a keyword or reference of the schema that is not supported. */
AB_MUST_CHECK ab_status ab_schema_check(const cJSON *schema, const cJSON *value, bool strict,
                                        const char *origin);

/* The schema of result documents (compiled in from reports/schema/result-1.schema.json). The caller owns the
 * tree. */
AB_MUST_CHECK ab_status ab_schema_result(cJSON **schema);

AB_END_DECLS

#endif
