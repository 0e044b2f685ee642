/* Which matrix products and convolutions of a cell have half operands and are computed in fp32 all the same,
 * from the implementations in the document. */
#ifndef AB_REPORTS_RENDER_HALF_PRODUCTS_H
#define AB_REPORTS_RENDER_HALF_PRODUCTS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* Writes a sentence about the cell's half products: that all of them, or how many and which, are computed in
 * fp32. A product is one pass of an op: forward, by its data, or by its weights. False, and "", if all are
 * native or there are none. */
bool ab_half_products_text(const cJSON *cell, char *text, size_t size);

AB_END_DECLS

#endif
