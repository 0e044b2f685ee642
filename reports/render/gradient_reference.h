/* Prints the reference gradients of a document (cells[].shadow). */
#ifndef AB_REPORTS_RENDER_GRADIENT_REFERENCE_H
#define AB_REPORTS_RENDER_GRADIENT_REFERENCE_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* A few lines per cell with reference gradients: the loss, the tensors with the largest error, flushed
 * energy, bias and overflow count. */
void ab_gradient_reference_print(const cJSON *document, FILE *out);

#endif
