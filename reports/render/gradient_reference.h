/* Shadow gradients (cells[].shadow of a document) for people. */
#ifndef AB_REPORTS_RENDER_GRADIENT_REFERENCE_H
#define AB_REPORTS_RENDER_GRADIENT_REFERENCE_H

#include <cjson/cJSON.h>
#include <stdio.h>

/* A few lines for every cell that has them: the loss, the tensor with the largest error, the one that lost
 * most. */
void ab_gradient_reference_print(const cJSON *document, FILE *out);

#endif
