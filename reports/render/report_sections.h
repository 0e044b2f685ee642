/* Prints the origin of inf and NaN (cells[].probes.origin of a document). */
#ifndef AB_REPORTS_RENDER_REPORT_SECTIONS_H
#define AB_REPORTS_RENDER_REPORT_SECTIONS_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* For every cell whose first unexpected non-finite value was located: where, why, the previous magnitudes
 * of that tensor, and where the value propagated. Prints nothing for other cells. */
void ab_origin_print(const cJSON *document, FILE *out);

/* Prints the reference gradients of a document (cells[].shadow). */

/* A few lines per cell with reference gradients: the loss, the tensors with the largest error, flushed
 * energy, bias and overflow count. */
void ab_gradient_reference_print(const cJSON *document, FILE *out);

#endif
