/* Where the steps that a scaler skipped overflowed, from the record of the probe origin. */
#ifndef AB_REPORTS_SKIPS_H
#define AB_REPORTS_SKIPS_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

AB_BEGIN_DECLS

/* A skipped step. Texts are borrowed from the document, not cleaned; NULL: not known. */
typedef struct ab_skip {
    int step;
    const char *op, *pass, *tensor, *format;
    double margin; /* octaves above what the format holds; NAN: not known */
    double scale;  /* loss scale of the step; NAN: not known */
} ab_skip;

/* Skipped steps that the record lists. */
int ab_skips_count(const cJSON *cell);

/* The steps in their order; *skip of the `i`-th. */
void ab_skip_at(const cJSON *cell, int i, ab_skip *skip);

/* "fc3 backward, in0.grad: 2^1.2 above what fp16 holds", cleaned, of any length that `size` has room for;
 * returns text. */
enum { AB_SKIP_TEXT = 320 };
const char *ab_skip_text(const ab_skip *skip, char text[AB_SKIP_TEXT]);

AB_END_DECLS

#endif
