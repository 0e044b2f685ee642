/* What other formats would do to the tensors of a result document: flushed and overflowed values from the
 * exponents that the probes recorded, as intervals, because the mantissas are not recorded. Reads no tensor.
 */
#ifndef AB_REPORTS_INSPECT_RECORDED_H
#define AB_REPORTS_INSPECT_RECORDED_H

#include "reports/inspect/inspection.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Counts of values: at least low, at most high. */
typedef struct ab_recorded_range {
    double low, high;
} ab_recorded_range;

/* Non-zero values of a tensor of the record (with `exponents`) that are 0, or beyond the range, in `format`
 * after multiplication by `scale`. */
ab_recorded_range ab_recorded_flushed(const cJSON *tensor, const ab_format *format, double scale);
ab_recorded_range ab_recorded_overflowed(const cJSON *tensor, const ab_format *format, double scale);

/* The tensors of the O0 cells (of all cells without one) whose name `picks` accepts, at the question's
 * formats and scale: as text, or as JSON owned by the caller. AB_INPUT if the document has none. */
typedef bool (*ab_recorded_picks)(const void *context, const char *name);
AB_MUST_CHECK ab_status ab_recorded_print(const cJSON *document, const ab_inspect_question *question,
                                          ab_recorded_picks picks, const void *context, FILE *out);
AB_MUST_CHECK ab_status ab_recorded_json(const cJSON *document, const ab_inspect_question *question,
                                         ab_recorded_picks picks, const void *context, cJSON **json);

AB_END_DECLS

#endif
